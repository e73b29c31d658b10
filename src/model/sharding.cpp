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

Slice kv_heads_of(const Slice& heads, const ModelConfig& config) {
  if (heads.empty()) return {};
  const std::int64_t group = config.heads / config.kv_heads;
  const std::int64_t unit = kPanelRows / std::gcd(config.head_dim, kPanelRows);
  const std::int64_t last = (heads.last - 1) / group + 1;
  return {heads.first / group / unit * unit, std::min(config.kv_heads, round_up(last, unit))};
}

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
  const std::int64_t head_unit = kGroup / std::gcd(config.head_dim, kGroup);
  std::vector<RankShare> shares;
  for (int rank = 0; rank < ranks; ++rank) {
    RankShare share;
    share.rank = rank;
    share.ranks = ranks;
    share.head_dim = config.head_dim;
    share.heads = even_share(config.heads, head_unit, rank, ranks);
    share.kv_heads = kv_heads_of(share.heads, config);
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

Slice RankShare::mlp(std::int64_t hidden) const { return even_share(hidden, kGroup, rank, ranks); }

Slice RankShare::of(Axis axis, std::int64_t count) const {
  const auto rows = [&](const Slice& of_heads) {
    return Slice{of_heads.first * head_dim, of_heads.last * head_dim};
  };
  switch (axis) {
    case Axis::stream:
      return stream;
    case Axis::query_heads:
      return rows(heads);
    case Axis::kv_heads:
      return rows(kv_heads);
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
    case Axis::whole:
      return {0, count};
  }
  return {};
}

std::vector<Slice> RankShare::rows(Axis axis, std::int64_t count) const {
  if (axis != Axis::delta_channels) return {of(axis, count)};
  if (delta_heads.count() == delta.key_heads) return {{0, count}};
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

std::vector<Slice> kv_heads_of_ranks(const RankPlace& place) {
  std::vector<Slice> heads;
  for (const RankShare& share : place.shares) heads.push_back(share.kv_heads);
  return heads;
}

}  // namespace leq
