// Tensor name rules of experts, shared by all families whose checkpoints transformers writes.
#pragma once

#include <vector>

#include "families/family.h"

namespace leq {

// Keys of Qwen's configurations with a shared expert.
inline constexpr ExpertKeys kQwenSharedExpertKeys = {
    .experts = "num_experts",
    .active = "num_experts_per_tok",
    .hidden = "moe_intermediate_size",
    .normalized = nullptr,
    .sparse_step = "decoder_sparse_step",
    .dense_layers = "mlp_only_layers",
    .shared_hidden = "shared_expert_intermediate_size"};

// Rules for all experts stacked in one tensor, as in transformers 5.
inline void add_stacked_experts(Family& family) {
  const std::vector<TensorRule> rules = {
      {"layers.{}.experts.{}.gate",
       "layers.{}.mlp.experts.gate_up_proj",
       {.part = 0, .parts = 2, .stacked = true}},
      {"layers.{}.experts.{}.up",
       "layers.{}.mlp.experts.gate_up_proj",
       {.part = 1, .parts = 2, .stacked = true}},
      {"layers.{}.experts.{}.down", "layers.{}.mlp.experts.down_proj", {.stacked = true}},
      {"layers.{}.router", "layers.{}.mlp.gate.weight"},
  };
  family.tensors.insert(family.tensors.end(), rules.begin(), rules.end());
}

// Rules for one tensor per expert, as in Qwen's checkpoints.
inline void add_single_experts(Family& family) {
  const std::vector<TensorRule> rules = {
      {"layers.{}.experts.{}.gate", "layers.{}.mlp.experts.{}.gate_proj.weight"},
      {"layers.{}.experts.{}.up", "layers.{}.mlp.experts.{}.up_proj.weight"},
      {"layers.{}.experts.{}.down", "layers.{}.mlp.experts.{}.down_proj.weight"},
  };
  family.tensors.insert(family.tensors.end(), rules.begin(), rules.end());
}

// Rules for the shared expert, which runs for every token, and for its gate.
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
