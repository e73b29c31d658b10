#include "model/sharding.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "tensor/weight_slice.h"

namespace leq {
namespace {

constexpr std::int64_t kGroup = 128;  // columns of an activation scale

// The share of `rank` of `count` things that are cut at multiples of `unit`. The leader, who
// samples too, never has more than others.
Slice even_share(std::int64_t count, std::int64_t unit, int rank, int ranks) {
  const std::int64_t units = (count + unit - 1) / unit;
  return {std::min(count, units * rank / ranks * unit),
          std::min(count, units * (rank + 1) / ranks * unit)};
}

Slice kv_heads_of(const Slice& heads, const ModelConfig& config) {
  if (heads.empty()) return {};
  const std::int64_t group = config.heads / config.kv_heads;
  const std::int64_t unit = std::lcm(config.head_dim, kPanelRows) / config.head_dim;
  const std::int64_t last = (heads.last - 1) / group + 1;
  return {heads.first / group / unit * unit, std::min(config.kv_heads, round_up(last, unit))};
}

Slice times(const Slice& slice, std::int64_t factor) {
  return {slice.first * factor, slice.last * factor};
}

void cut_segment(LinearSegment& segment, const Slice& rows) {
  segment.weight = slice_rows(segment.weight, rows);
  if (segment.bias != nullptr) segment.bias += rows.first;
}

void count_outputs(Linear& linear) {
  linear.outputs = 0;
  for (const LinearSegment& segment : linear.parts()) linear.outputs += segment.weight.rows;
}

// All segments have the same rows.
void cut_linear(Linear& linear, const Slice& rows) {
  for (int i = 0; i < linear.segment_count; ++i) {
    cut_segment(linear.segments[static_cast<std::size_t>(i)], rows);
  }
  count_outputs(linear);
}

}  // namespace

std::vector<RankShare> cut_model(const ModelConfig& config, int ranks) {
  const std::int64_t head_unit = std::lcm(config.head_dim, kGroup) / config.head_dim;
  std::vector<RankShare> shares;
  for (int rank = 0; rank < ranks; ++rank) {
    RankShare share;
    share.heads = even_share(config.heads, head_unit, rank, ranks);
    share.kv_heads = kv_heads_of(share.heads, config);
    share.mlp = even_share(config.hidden, kGroup, rank, ranks);
    share.stream = even_share(config.width, kPanelRows, rank, ranks);
    share.vocabulary = even_share(config.vocab, kPanelRows, rank, ranks);
    shares.push_back(share);
  }
  return shares;
}

RankPlace place_of(const ModelConfig& config, int rank, int ranks) {
  return {cut_model(config, ranks), static_cast<std::size_t>(rank)};
}

std::vector<Slice> kv_heads_of_ranks(const RankPlace& place) {
  std::vector<Slice> heads;
  for (const RankShare& share : place.shares) heads.push_back(share.kv_heads);
  return heads;
}

Weights take_share(Weights whole, const ModelConfig& config, const RankPlace& place) {
  if (place.alone()) return whole;
  Weights share = shard_weights(whole, place.own(), config);
  share.memory = std::move(whole.memory);
  for (std::size_t i = 0; i < whole.blocks.size(); ++i) {
    // Where key_offset points on the CPU.
    share.blocks[i].key_centre = std::move(whole.blocks[i].key_centre);
  }
  return share;
}

Weights shard_weights(const Weights& whole, const RankShare& share, const ModelConfig& config) {
  Weights own;
  own.token_embedding = whole.token_embedding;
  own.position_embedding = whole.position_embedding;
  own.blocks = whole.blocks;
  own.final_norm = whole.final_norm;
  own.head = whole.head;
  own.memory_bytes = whole.memory_bytes;
  own.upload = whole.upload;
  const Slice queries = times(share.heads, config.head_dim);
  const Slice keys = times(share.kv_heads, config.head_dim);
  for (Block& block : own.blocks) {
    cut_segment(block.qkv.segments[0], queries);
    cut_segment(block.qkv.segments[1], keys);
    cut_segment(block.qkv.segments[2], keys);
    count_outputs(block.qkv);
    cut_linear(block.o, share.stream);
    cut_linear(block.gate_up, share.mlp);
    cut_linear(block.down, share.stream);
  }
  cut_linear(own.head, share.vocabulary);
  return own;
}

}  // namespace leq
