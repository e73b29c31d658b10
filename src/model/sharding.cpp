#include "model/sharding.h"

#include <algorithm>
#include <numeric>

#include "base/bytes.h"
#include "base/error.h"
#include "comm/division.h"
#include "tensor/weight_layout.h"

namespace leq {
namespace {

constexpr std::int64_t kGroup = 128;  // columns of an activation scale

Slice kv_heads_of(const Slice& heads, const ModelConfig& config) {
  if (heads.empty()) return {};
  const std::int64_t group = config.heads / config.kv_heads;
  const std::int64_t unit = kPanelRows / std::gcd(config.head_dim, kPanelRows);
  const std::int64_t last = (heads.last - 1) / group + 1;
  return {heads.first / group / unit * unit, std::min(config.kv_heads, round_up(last, unit))};
}

}  // namespace

std::vector<RankShare> cut_model(const ModelConfig& config, int ranks) {
  require(ranks == 1 || config.delta_net() == nullptr, ErrorKind::bad_setting, Setting{"ranks"},
          " ", ranks, ": a model with layers of Gated DeltaNet is not shared among ranks; use one");
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
    case Axis::delta:
    case Axis::whole:
      return {0, count};
  }
  return {};
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
