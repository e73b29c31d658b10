// Shared by Qwen 3.5 and Qwen3-Next: gains around zero, gated attention, layers of Gated DeltaNet.
#pragma once

#include "families/family.h"
#include "families/llama.h"

namespace leq {

inline constexpr DeltaKeys kQwenDeltaKeys = {.key_heads = "linear_num_key_heads",
                                             .value_heads = "linear_num_value_heads",
                                             .key_dim = "linear_key_head_dim",
                                             .value_dim = "linear_value_head_dim",
                                             .taps = "linear_conv_kernel_dim",
                                             .interval = "full_attention_interval"};

// Rows of q_proj: for each head the rows of the query, then the rows of the gate.
inline std::int64_t query_gate_rows(const ModelConfig& config) {
  return 2 * config.heads * config.head_dim;
}
inline constexpr RowOrder kQueryRows = {query_gate_rows,
                                        [](const ModelConfig& config, std::int64_t row) {
                                          const std::int64_t head = row / config.head_dim;
                                          return row + head * config.head_dim;
                                        }};
inline constexpr RowOrder kGateRows = {query_gate_rows,
                                       [](const ModelConfig& config, std::int64_t row) {
                                         const std::int64_t head = row / config.head_dim;
                                         return row + (head + 1) * config.head_dim;
                                       }};

// Rules of all tensors except the projections into Gated DeltaNet.
inline std::vector<TensorRule> qwen3_5_common_tensors() {
  return {
      {"token_embedding", "embed_tokens.weight"},
      {"layers.{}.attention_norm", "layers.{}.input_layernorm.weight", {}, kAroundZero},
      {"layers.{}.q", "layers.{}.self_attn.q_proj.weight", {.order = &kQueryRows}},
      {"layers.{}.attention_gate", "layers.{}.self_attn.q_proj.weight", {.order = &kGateRows}},
      {"layers.{}.k", "layers.{}.self_attn.k_proj.weight"},
      {"layers.{}.v", "layers.{}.self_attn.v_proj.weight"},
      {"layers.{}.q_norm", "layers.{}.self_attn.q_norm.weight", {}, kAroundZero},
      {"layers.{}.k_norm", "layers.{}.self_attn.k_norm.weight", {}, kAroundZero},
      {"layers.{}.o", "layers.{}.self_attn.o_proj.weight"},
      {"layers.{}.delta_in_norm", "layers.{}.input_layernorm.weight", {}, kAroundZero},
      {"layers.{}.delta_conv", "layers.{}.linear_attn.conv1d.weight", {.taps_first = true}},
      {"layers.{}.delta_a_log", "layers.{}.linear_attn.A_log"},
      {"layers.{}.delta_dt_bias", "layers.{}.linear_attn.dt_bias"},
      {"layers.{}.delta_norm", "layers.{}.linear_attn.norm.weight"},
      {"layers.{}.delta_out", "layers.{}.linear_attn.out_proj.weight"},
      {"layers.{}.mlp_norm", "layers.{}.post_attention_layernorm.weight", {}, kAroundZero},
      {"layers.{}.gate", "layers.{}.mlp.gate_proj.weight"},
      {"layers.{}.up", "layers.{}.mlp.up_proj.weight"},
      {"layers.{}.down", "layers.{}.mlp.down_proj.weight"},
      {"final_norm", "norm.weight", {}, kAroundZero},
      // The head of multi-token prediction:
      {"embedding_norm", "pre_fc_norm_embedding.weight", {}, kAroundZero},
      {"hidden_norm", "pre_fc_norm_hidden.weight", {}, kAroundZero},
      {"fc_embedding", "fc.weight", {.column_part = 0, .column_parts = 2}},
      {"fc_hidden", "fc.weight", {.column_part = 1, .column_parts = 2}},
  };
}

// The projections into Gated DeltaNet, named and laid out as in Qwen 3.5.
inline void add_delta_projections(Family& family) {
  const std::vector<TensorRule> projections = {
      {"layers.{}.delta_qkv", "layers.{}.linear_attn.in_proj_qkv.weight"},
      {"layers.{}.delta_z", "layers.{}.linear_attn.in_proj_z.weight"},
      {"layers.{}.delta_b", "layers.{}.linear_attn.in_proj_b.weight"},
      {"layers.{}.delta_a", "layers.{}.linear_attn.in_proj_a.weight"},
  };
  family.tensors.insert(family.tensors.end(), projections.begin(), projections.end());
}

inline Family qwen3_5_like(std::string_view name, std::string_view model_type,
                           std::string_view architecture) {
  Family family = llama_like(name, model_type, architecture);
  family.tensors = qwen3_5_common_tensors();
  family.qk_norm = true;
  family.output_gate = true;
  family.defaults = R"({"max_position_embeddings": 32768, "head_dim": 256})";
  family.partial_rotary = 0.25;
  family.delta = &kQwenDeltaKeys;
  family.fixed = {{"attention_bias", false}};
  return family;
}

}  // namespace leq
