// Small models with layers of a fixed state.
#pragma once

#include "reference/random_checkpoint.h"

namespace leq::test {

struct SmallDelta {
  int key_heads = 2, value_heads = 4, key_dim = 16, value_dim = 16;
};

// Returns config.json of a small Qwen 3.5: three layers of Gated DeltaNet, then one with attention.
inline Json small_hybrid_config(const SmallDelta& delta) {
  Json config = small_config("qwen3_5_text", "Qwen3_5ForCausalLM", 4, 2);
  config["num_hidden_layers"] = 4;
  config["head_dim"] = 32;
  config["linear_num_key_heads"] = delta.key_heads;
  config["linear_num_value_heads"] = delta.value_heads;
  config["linear_key_head_dim"] = delta.key_dim;
  config["linear_value_head_dim"] = delta.value_dim;
  return config;
}

// Returns config.json of a small LFM2: attention in the second of three layers.
inline Json small_lfm2_config(int width) {
  Json config = small_config("lfm2", "Lfm2ForCausalLM", 4, 2);
  config["num_hidden_layers"] = 3;
  config["hidden_size"] = width;
  config["full_attn_idxs"] = {1};
  config["block_auto_adjust_ff_dim"] = false;
  return config;
}

// Adds experts, of which each token uses two, and a shared expert that all tokens use.
inline Json small_hybrid_config(const SmallDelta& delta, int experts, int hidden, int shared) {
  Json config = small_hybrid_config(delta);
  config["model_type"] = "qwen3_5_moe_text";
  config["architectures"] = {"Qwen3_5MoeForCausalLM"};
  config["num_local_experts"] = experts;
  config["num_experts_per_tok"] = 2;
  config["moe_intermediate_size"] = hidden;
  config["shared_expert_intermediate_size"] = shared;
  return config;
}

}  // namespace leq::test
