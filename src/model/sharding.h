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
  Slice stream;       // columns of W, which o and down output: in panels of 64
  Slice vocabulary;   // rows of V, in panels of 64
  Slice delta_heads;  // key heads of Gated DeltaNet, with their value heads
  int rank = 0, ranks = 1;
  std::int64_t all_heads = 0;  // query heads of the model
  DeltaNetConfig delta;        // the whole model's configuration; zero heads: no such layers

  // KV heads, of the layer's, that `heads` read, up to whole panels; ranks may overlap.
  Slice kv_heads(const KvHeads& layer) const;
  // Slice of the F columns of a layer's gated product, in groups of 128.
  Slice mlp(std::int64_t hidden) const;
  // Slice of the `count` columns of an axis. Not for delta_channels, which have several slices, nor
  // for kv_heads, which are rows of weights alone.
  Slice of(Axis axis, std::int64_t count) const;
  // Slices of the rows of a weight of a site.
  std::vector<Slice> rows(const LinearSite& site, const LinearSpec& weight) const;
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
// [layers of the cache] the heads whose pages a rank holds.
std::vector<KvHeads> kv_heads_of(const ModelConfig& config, const RankShare& share);
// [ranks] the same of each rank.
std::vector<std::vector<KvHeads>> kv_heads_of_ranks(const ModelConfig& config,
                                                    const RankPlace& place);

}  // namespace leq
