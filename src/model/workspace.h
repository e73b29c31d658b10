// All device memory that a forward pass uses in addition to weights and cache, allocated once:
// activation blocks, tables, scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/layout.h"
#include "backend/operations.h"
#include "model/model_config.h"
#include "model/rope.h"
#include "model/sharding.h"
#include "model/weights.h"

namespace leq {

struct ForwardLimits {
  std::int64_t batch_tokens = 512;  // T: rows of one forward pass
  std::int64_t output_tokens = 1;   // rows with logits per forward pass
  std::int64_t context = 0;         // limit of positions of one sequence
};

// Shape of the attention heads of one rank.
AttentionShape attention_shape(const ModelConfig& config, const AttentionWeights& weights,
                               const RankShare& share);

DeltaShape delta_shape(const ModelConfig& config, const DeltaNetWeights& weights,
                       std::int64_t layer, const RankShare& share);
ShortConvShape short_conv_shape(const ModelConfig& config, const ShortConvWeights& weights,
                                std::int64_t layer, const RankShare& share);
// Bytes of a sequence's fixed state on a rank, over all layers without attention. 0 if the model
// has no such layers or the rank has none of their heads or channels.
std::size_t fixed_state_bytes(const ModelConfig& config, const RankShare& share);
// [ranks] the same of each rank.
std::vector<std::size_t> state_bytes_of_ranks(const ModelConfig& config, const RankPlace& place);

// The moving scale of the inputs of one linear.
struct OnlineInput {
  const Linear* linear;
  OnlineScale scale;
};

// A block of rows whose columns several ranks compute: all columns, and those of this rank.
struct SharedBlock {
  RowsFor whole;
  RowsFor own;
  std::span<const Slice> columns;  // [ranks] columns that each rank computes
};

class Workspace {
 public:
  // All arguments must outlive the workspace. `weights` are those of the rank.
  Workspace(const ModelConfig& config, const Weights& weights, DeviceMemory& memory,
            const Layout& layout, const ForwardLimits& limits, const RankPlace& place);

  std::vector<RopeTable> ropes;  // tables of positions, for rope_of
  Rows x;                        // [T, W] the residual stream
  Rows branch;                   // [T, W] output of a sublayer that is normed before it is added
  Rows experts_branch;           // [T, W] output of experts beside a dense MLP
  Rows router_logits;            // [T, E + 1] of the most experts, and of a shared expert's gate
  Rows qkv;                      // [T, (H + 2 H_kv) d] of the rank's heads, of the widest layer
  Rows delta;                    // [T, channels + H_v d_v] q, k, v, z of Gated DeltaNet
  Rows conv;                     // [T, 3 W] b, c, x of short convolutions, of the rank's channels
  Rows hidden;                   // [T, W] input of a multi-token prediction head
  Rows delta_gates;              // [T, 2 H_v]
  Rows layer_inputs, token_inputs;  // [T, L P] inputs of all layers; their part of the token
  Rows gated_input;                 // [T, P] of one layer
  Rows last;                        // [outputs, W]
  Rows logits;                      // [outputs, V]; only the rank's columns if it is not the leader
  ExpertRoutes routes, shared_routes;
  Buffer exchange;  // receives the data of other ranks (Operations::connect)

  // The table of a layer's positions. Layers with equal positions and factors of queries share it.
  RopeTable& rope_of(const AttentionConfig& attention);
  // A note for the user about the tables; empty: none.
  std::string rope_note() const;
  // The input block of a linear, in the format that it reads, and the linear's parameters. Linears
  // of one site share blocks of the same format; linears of different sites never do.
  RowsFor input_of(const LayerLinear& linear);
  // Like input_of, for inputs whose columns several ranks compute, which a norm does not produce.
  SharedBlock shared_input_of(const LayerLinear& linear);
  SharedBlock shared_stream();  // x
  SharedBlock shared_branch();
  SharedBlock shared_experts_branch();
  // Rows [T k, W] grouped by expert, in the format of `linear`, which reads a norm's output.
  Rows& grouped_input_of(const LayerLinear& linear);
  // The columns of `qkv` that a layer uses; H d more for an output gate.
  Rows qkv_of(const AttentionShape& shape);
  // The block for router logits, with E columns, or E + 1 if there is a shared expert.
  Rows router_logits_of(const ExpertsMlpConfig& config);
  RowsConsumer consumer_of(const Linear& linear);
  SharedBlock shared_logits();
  // Moving scales of the linears with act online, in the order of a forward pass.
  std::span<OnlineInput> online() { return online_; }

 private:
  struct Input {
    std::string site;
    RowsFormat format;
    Rows rows;
    std::vector<Slice> columns = {};  // [ranks] computed columns; empty: each computes all
    Rows own = {};                    // this rank's part
  };
  struct Grouped {
    RowsFormat format;
    Rows rows;
  };
  // What a table of positions depends on.
  struct RopeRule {
    std::optional<RopeConfig> rope;
    QueryTemperature temperature;
    double query_scale;  // of queries with a temperature

    bool operator==(const RopeRule&) const = default;
  };
  static RopeRule rule_of(const AttentionConfig& attention);
  void allocate_ropes(const ModelConfig& config, DeviceMemory& memory, std::int64_t context);
  void allocate_grouped(const Weights& weights, DeviceMemory& memory, const ForwardLimits& limits);
  Input& find(const LayerLinear& linear);

  bool alone_;
  std::size_t rank_;
  std::vector<Slice> stream_, vocabulary_;  // [ranks]
  Rows own_x_, own_branch_, own_experts_branch_, own_logits_;
  const Layout& layout_;
  std::vector<Input> inputs_;
  std::vector<Grouped> grouped_;
  std::vector<OnlineInput> online_;
  std::vector<RopeRule> rope_rules_;          // of `ropes`
  std::vector<RopeFrequencies> frequencies_;  // read by `ropes`
};

}  // namespace leq
