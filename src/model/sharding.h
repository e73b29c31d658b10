// Division of a model among several ranks (docs/ranks.md). Every linear is divided by its outputs,
// in whole panels, and never by its inputs. Each sum is therefore computed by a single rank, and
// any number of ranks computes the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "base/slice.h"
#include "model/linear_sites.h"
#include "model/model_config.h"

namespace leq {

// The part of a model that one rank computes and stores. Slices may be uneven, and empty.
struct RankShare {
  Slice heads;        // query heads, in whole groups of 128 columns of attention output
  Slice kv_heads;     // KV heads that `heads` read, up to whole panels; ranks may overlap
  Slice stream;       // columns of W, which o and down output: in panels of 64
  Slice vocabulary;   // rows of V, in panels of 64
  Slice delta_heads;  // key heads of Gated DeltaNet, with their value heads
  int rank = 0, ranks = 1;
  std::int64_t head_dim = 0;  // d
  DeltaNetConfig delta;       // the whole model's configuration; zero heads: no such layers

  // Slice of the F columns of a layer's gated product, in groups of 128.
  Slice mlp(std::int64_t hidden) const;
  // Slice of the `count` columns of an axis. Not for delta_channels, which have several slices.
  Slice of(Axis axis, std::int64_t count) const;
  // Slices of the `count` rows of a weight.
  std::vector<Slice> rows(Axis axis, std::int64_t count) const;
  // The DeltaNet configuration with only the heads of this rank.
  DeltaNetConfig own_delta() const;
};

// Divides each kind of slice as evenly as its units allow. Returns [ranks]; ranks >= 1.
std::vector<RankShare> cut_model(const ModelConfig& config, int ranks);

// One rank's index and the shares of all ranks that share a model.
struct RankPlace {
  std::vector<RankShare> shares;  // [ranks]
  std::size_t rank = 0;

  const RankShare& own() const { return shares[rank]; }
  bool alone() const { return shares.size() == 1; }
  bool leads() const { return rank == 0; }
};

RankPlace place_of(const ModelConfig& config, int rank, int ranks);
// [ranks] KV heads whose pages each rank holds.
std::vector<Slice> kv_heads_of_ranks(const RankPlace& place);

}  // namespace leq
