// How a model is cut for several ranks (docs/ranks.md): every linear by its outputs, in whole
// panels, never by its inputs. So no rank sums what another does, and any number of ranks computes
// the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "base/slice.h"
#include "model/linear_sites.h"
#include "model/model_config.h"

namespace leq {

// What one rank computes and holds. Slices may be uneven, and empty.
struct RankShare {
  Slice heads;       // query heads: whole groups of 128 columns of the attention output
  Slice kv_heads;    // held here: what these read, out to whole panels; ranks may share some
  Slice stream;      // of W, what o and down add to: panels of 64
  Slice vocabulary;  // of V: panels of 64
  int rank = 0, ranks = 1;
  std::int64_t head_dim = 0;  // d

  // Of the F columns of a layer's gated product: groups of 128.
  Slice mlp(std::int64_t hidden) const;
  // Of the `count` rows or columns of an axis.
  Slice of(Axis axis, std::int64_t count) const;
};

// [ranks] shares of the model; each kind is divided as evenly as its units allow. ranks >= 1. Throws
// Error where several ranks are to share layers of Gated DeltaNet.
std::vector<RankShare> cut_model(const ModelConfig& config, int ranks);

// One rank's place among those that share a model.
struct RankPlace {
  std::vector<RankShare> shares;  // [ranks]
  std::size_t rank = 0;

  const RankShare& own() const { return shares[rank]; }
  bool alone() const { return shares.size() == 1; }
  bool leads() const { return rank == 0; }
};

RankPlace place_of(const ModelConfig& config, int rank, int ranks);
// [ranks] whose pages each has.
std::vector<Slice> kv_heads_of_ranks(const RankPlace& place);

}  // namespace leq
