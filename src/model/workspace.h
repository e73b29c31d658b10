// All that a forward pass takes of a device beside weights and cache, asked for once: blocks of
// activations, tables, scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/expert_routes.h"
#include "backend/layout.h"
#include "backend/tables.h"
#include "model/model_config.h"
#include "model/rope.h"
#include "model/sharding.h"
#include "model/weights.h"

namespace leq {

struct ForwardLimits {
  std::int64_t batch_tokens = 512;  // T: rows of one forward
  std::int64_t output_tokens = 1;   // rows with logits
  std::int64_t context = 0;         // positions of one sequence
};

// Of the heads of a rank.
AttentionShape attention_shape(const ModelConfig& config, const AttentionWeights& weights,
                               const RankShare& share);

DeltaShape delta_shape(const ModelConfig& config, const DeltaNetWeights& weights,
                       std::int64_t layer, const RankShare& share);
// Bytes of a sequence's fixed state on a rank: of all layers of Gated DeltaNet. 0 where there are
// none, or where the rank has none of their heads.
std::size_t fixed_state_bytes(const ModelConfig& config, const RankShare& share);

// The moving scale of one linear's inputs.
struct OnlineInput {
  const Linear* linear;
  OnlineScale scale;
};

// A block that ranks write together: the whole of it, and what this one writes.
struct SharedBlock {
  RowsFor whole;
  RowsFor own;
  std::span<const Slice> columns;  // [ranks]
};

class Workspace {
 public:
  // All of them must outlive the workspace. `weights` are those of the rank.
  Workspace(const ModelConfig& config, const Weights& weights, DeviceMemory& memory,
            const Layout& layout, const ForwardLimits& limits, const RankPlace& place);

  const RopeFrequencies frequencies;  // that `rope` reads
  RopeTable rope;
  RotationTable rotation;  // block 0 where the stream is not rotated
  Rows x;                  // [T, W] the residual stream
  Rows branch;             // [T, W] what a sublayer adds, where that is normed first
  Rows router_logits;      // [T, E] of the layer with most experts; empty where there are none
  Rows shared_gate;        // [T, 1]
  Rows qkv;                // [T, (H + 2 H_kv) d] of the rank's heads, with a gate H d more
  Rows delta;              // [T, channels + H_v d_v] q, k, v, z of Gated DeltaNet
  Rows hidden;             // [T, W] of a head of multi-token prediction
  Rows delta_gates;        // [T, 2 H_v]
  Rows last;               // [outputs, W]
  Rows logits;             // [outputs, V]; of ranks that do not lead, their columns
  ExpertRoutes routes, shared_routes;
  Buffer exchange;  // for what other ranks send (Operations::connect)

  // The input block of a linear in the format that it reads, and what the linear wants of it;
  // linears of one site share the blocks of one format, those of different sites never.
  RowsFor input_of(const LayerLinear& linear);
  // The same for inputs that ranks make together, each its columns: of linears that read no norm.
  SharedBlock shared_input_of(const LayerLinear& linear);
  SharedBlock shared_stream();  // x
  SharedBlock shared_branch();
  // Rows in groups by expert, [T k, W], in the format of `linear`, which reads a norm's rows.
  Rows& grouped_input_of(const LayerLinear& linear);
  // The first E columns of router_logits.
  Rows router_logits_of(const ExpertsMlpConfig& config);
  RowsConsumer consumer_of(const Linear& linear);
  SharedBlock shared_logits();
  // Linears with a moving scale in the order of a forward pass: what they remember of their inputs.
  std::span<OnlineInput> online() { return online_; }

 private:
  struct Input {
    std::string site;
    RowsFormat format;
    Rows rows;
    std::vector<Slice> columns = {};  // [ranks] that each makes; empty: rows are made whole
    Rows own = {};                    // this rank's
  };
  struct Grouped {
    RowsFormat format;
    Rows rows;
  };
  void allocate_grouped(const Weights& weights, DeviceMemory& memory, const ForwardLimits& limits);
  Input& find(const LayerLinear& linear);

  bool alone_;
  std::size_t rank_;
  std::vector<Slice> stream_, vocabulary_;  // [ranks]
  Rows own_x_, own_branch_, own_logits_;
  const Layout& layout_;
  std::vector<Input> inputs_;
  std::vector<Grouped> grouped_;
  std::vector<OnlineInput> online_;
};

}  // namespace leq
