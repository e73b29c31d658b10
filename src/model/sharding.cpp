#include "model/sharding.h"

#include <algorithm>
#include <numeric>

#include "base/bytes.h"
#include "base/error.h"
#include "ranks/communicator.h"
#include "tensor/weight_layout.h"

namespace leq {
namespace {

constexpr std::int64_t kGroup = 128;  // columns that share an activation scale

// Columns of all value heads that belong to one key head.
std::int64_t values_of_key_head(const DeltaNetConfig& delta) {
  return delta.values() / delta.key_heads;
}

// Smallest number of key heads that a rank may get: their rows must be whole panels and their
// outputs whole groups. If k does not start at a panel, one rank gets all key heads.
std::int64_t delta_unit(const DeltaNetConfig& delta) {
  if (delta.keys() % kPanelRows != 0) return delta.key_heads;
  return std::lcm(kPanelRows / std::gcd(delta.key_dim, kPanelRows),
                  kGroup / std::gcd(values_of_key_head(delta), kGroup));
}

// The channel ranges of q, k and v of the key heads `heads`.
std::vector<Slice> channels_of(const DeltaNetConfig& delta, const Slice& heads) {
  const std::int64_t values = values_of_key_head(delta);
  const auto from = [&](std::int64_t first, std::int64_t dims) {
    return Slice{first + heads.first * dims, first + heads.last * dims};
  };
  return {from(0, delta.key_dim), from(delta.keys(), delta.key_dim),
          from(2 * delta.keys(), values)};
}

}  // namespace

std::vector<RankShare> cut_model(const ModelConfig& config, int ranks) {
  std::int64_t head_unit = 1;
  for (const std::int64_t layer : config.attention_layers()) {
    const std::int64_t dims = config.kv_heads_of(*config.layer(layer).attention()).dims;
    head_unit = std::lcm(head_unit, kGroup / std::gcd(dims, kGroup));
  }
  std::vector<RankShare> shares;
  for (int rank = 0; rank < ranks; ++rank) {
    RankShare share;
    share.rank = rank;
    share.ranks = ranks;
    share.all_heads = config.heads;
    share.heads = even_share(config.heads, head_unit, rank, ranks);
    share.stream = even_share(config.width, kPanelRows, rank, ranks);
    share.vocabulary = even_share(config.vocab, kPanelRows, rank, ranks);
    if (const DeltaNetConfig* delta = config.delta_net()) {
      share.delta = *delta;
      share.delta_heads = even_share(delta->key_heads, delta_unit(*delta), rank, ranks);
    }
    shares.push_back(share);
  }
  return shares;
}

Slice RankShare::kv_heads(const KvHeads& layer) const {
  if (heads.empty()) return {};
  const std::int64_t group = all_heads / layer.count;
  const std::int64_t unit = kPanelRows / std::gcd(layer.dims, kPanelRows);
  const std::int64_t last = (heads.last - 1) / group + 1;
  return {heads.first / group / unit * unit, std::min(layer.count, round_up(last, unit))};
}

Slice RankShare::mlp(std::int64_t hidden) const { return even_share(hidden, kGroup, rank, ranks); }

Slice RankShare::of(Axis axis, std::int64_t count) const {
  switch (axis) {
    case Axis::stream:
      return stream;
    case Axis::query_heads: {
      const std::int64_t dims = count / all_heads;
      return {heads.first * dims, heads.last * dims};
    }
    case Axis::mlp:
      return mlp(count);
    case Axis::vocabulary:
      return vocabulary;
    case Axis::delta_values: {
      const std::int64_t values = values_of_key_head(delta);
      return {delta_heads.first * values, delta_heads.last * values};
    }
    case Axis::delta_channels:
      ensure(delta_heads.count() == delta.key_heads, "the channels of some heads are no one slice");
      return {0, count};
    case Axis::kv_heads:
    case Axis::whole:
      return {0, count};
  }
  return {};
}

std::vector<Slice> RankShare::rows(const LinearSite& site, const LinearSpec& weight) const {
  if (weight.axis == Axis::kv_heads) {
    const Slice own = kv_heads(site.kv_heads);
    return {{own.first * site.kv_heads.dims, own.last * site.kv_heads.dims}};
  }
  if (weight.axis != Axis::delta_channels) return {of(weight.axis, weight.outputs)};
  if (delta_heads.count() == delta.key_heads) return {{0, weight.outputs}};
  return channels_of(delta, delta_heads);
}

DeltaNetConfig RankShare::own_delta() const {
  DeltaNetConfig own = delta;
  if (delta.key_heads == 0) return own;
  own.key_heads = delta_heads.count();
  own.value_heads = own.key_heads * (delta.value_heads / delta.key_heads);
  return own;
}

RankPlace place_of(const ModelConfig& config, int rank, int ranks) {
  return {cut_model(config, ranks), static_cast<std::size_t>(rank)};
}

std::vector<KvHeads> kv_heads_of(const ModelConfig& config, const RankShare& share) {
  std::vector<KvHeads> heads;
  for (const std::int64_t layer : config.cache_layers()) {
    const KvHeads all = config.kv_heads_of(*config.layer(layer).attention());
    heads.push_back({share.kv_heads(all).count(), all.dims});
  }
  return heads;
}

std::vector<std::vector<KvHeads>> kv_heads_of_ranks(const ModelConfig& config,
                                                    const RankPlace& place) {
  std::vector<std::vector<KvHeads>> heads;
  for (const RankShare& share : place.shares) heads.push_back(kv_heads_of(config, share));
  return heads;
}

}  // namespace leq
