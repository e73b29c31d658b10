// Names of the tensors of experts, as all families have them that transformers writes.
#pragma once

#include <vector>

#include "models/family.h"

namespace leq {

// Keys of Qwen's configurations with a shared expert.
inline constexpr ExpertKeys kQwenSharedExpertKeys = {
    .experts = "num_experts",
    .experts_too = "num_local_experts",
    .active = "num_experts_per_tok",
    .hidden = "moe_intermediate_size",
    .normalized = nullptr,
    .sparse_step = "decoder_sparse_step",
    .dense_layers = "mlp_only_layers",
    .shared_hidden = "shared_expert_intermediate_size"};

// All experts in one tensor, as transformers 5 has them.
inline void add_stacked_experts(Family& family) {
  const std::vector<TensorRule> rules = {
      {"layers.{}.experts.{}.gate", "layers.{}.mlp.experts.gate_up_proj", false, 0, 2, true},
      {"layers.{}.experts.{}.up", "layers.{}.mlp.experts.gate_up_proj", false, 1, 2, true},
      {"layers.{}.experts.{}.down", "layers.{}.mlp.experts.down_proj", false, 0, 1, true},
      {"layers.{}.router", "layers.{}.mlp.gate.weight"},
  };
  family.tensors.insert(family.tensors.end(), rules.begin(), rules.end());
}

// A tensor for each expert, as Qwen's checkpoints have them.
inline void add_single_experts(Family& family) {
  const std::vector<TensorRule> rules = {
      {"layers.{}.experts.{}.gate", "layers.{}.mlp.experts.{}.gate_proj.weight"},
      {"layers.{}.experts.{}.up", "layers.{}.mlp.experts.{}.up_proj.weight"},
      {"layers.{}.experts.{}.down", "layers.{}.mlp.experts.{}.down_proj.weight"},
  };
  family.tensors.insert(family.tensors.end(), rules.begin(), rules.end());
}

// An expert of every token, with its gate.
inline void add_shared_expert(Family& family) {
  const std::vector<TensorRule> rules = {
      {"layers.{}.shared_gate", "layers.{}.mlp.shared_expert_gate.weight"},
      {"layers.{}.shared.gate", "layers.{}.mlp.shared_expert.gate_proj.weight"},
      {"layers.{}.shared.up", "layers.{}.mlp.shared_expert.up_proj.weight"},
      {"layers.{}.shared.down", "layers.{}.mlp.shared_expert.down_proj.weight"},
  };
  family.tensors.insert(family.tensors.end(), rules.begin(), rules.end());
}

}  // namespace leq
