// How a model is cut for several ranks (docs/ranks.md): every linear by its outputs, in whole
// panels, never by its inputs. So no rank sums what another does, and any number of ranks computes
// the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "base/slice.h"
#include "comm/communicator.h"
#include "model/linear_sites.h"
#include "model/model_config.h"

namespace leq {

// What one rank computes and holds. Slices may be uneven, and empty.
struct RankShare {
  Slice heads;        // query heads: whole groups of 128 columns of the attention output
  Slice kv_heads;     // held here: what these read, out to whole panels; ranks may share some
  Slice stream;       // of W, what o and down add to: panels of 64
  Slice vocabulary;   // of V: panels of 64
  Slice delta_heads;  // key heads of Gated DeltaNet with their value heads
  int rank = 0, ranks = 1;
  std::int64_t head_dim = 0;  // d
  DeltaNetConfig delta;       // the model's; without heads where no layer is one

  // Of the F columns of a layer's gated product: groups of 128.
  Slice mlp(std::int64_t hidden) const;
  // Of the `count` columns of an axis, which are one slice for all axes but delta_channels.
  Slice of(Axis axis, std::int64_t count) const;
  // Of the `count` rows of a weight.
  std::vector<Slice> rows(Axis axis, std::int64_t count) const;
  // The heads of Gated DeltaNet that are this rank's.
  DeltaNetConfig own_delta() const;
};

// [ranks] shares of the model; each kind is divided as evenly as its units allow. ranks >= 1.
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
// Where each rank's heads lie in a whole fixed state (FixedStates): [runs][ranks].
std::vector<std::vector<ByteRange>> state_parts_of_ranks(const ModelConfig& config,
                                                         const RankPlace& place);

}  // namespace leq
