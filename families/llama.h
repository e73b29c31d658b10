// Config keys and tensor names shared by LLaMA and its descendants.
#pragma once

#include <vector>

#include "families/family.h"

namespace leq {

inline constexpr ConfigKeys kLlamaKeys = {
    .width = "hidden_size",
    .layers = "num_hidden_layers",
    .heads = "num_attention_heads",
    .kv_heads = "num_key_value_heads",
    .head_dim = "head_dim",
    .hidden = "intermediate_size",
    .vocab = "vocab_size",
    .context = "max_position_embeddings",
    .norm_eps = "rms_norm_eps",
    .activation = "hidden_act",
};

inline std::vector<TensorRule> llama_tensors() {
  return {
      {"token_embedding", "embed_tokens.weight"},
      {"layers.{}.attention_norm", "layers.{}.input_layernorm.weight"},
      {"layers.{}.q", "layers.{}.self_attn.q_proj.weight"},
      {"layers.{}.q.bias", "layers.{}.self_attn.q_proj.bias"},
      {"layers.{}.k", "layers.{}.self_attn.k_proj.weight"},
      {"layers.{}.k.bias", "layers.{}.self_attn.k_proj.bias"},
      {"layers.{}.v", "layers.{}.self_attn.v_proj.weight"},
      {"layers.{}.v.bias", "layers.{}.self_attn.v_proj.bias"},
      {"layers.{}.q_norm", "layers.{}.self_attn.q_norm.weight"},
      {"layers.{}.k_norm", "layers.{}.self_attn.k_norm.weight"},
      {"layers.{}.o", "layers.{}.self_attn.o_proj.weight"},
      {"layers.{}.o.bias", "layers.{}.self_attn.o_proj.bias"},
      {"layers.{}.mlp_norm", "layers.{}.post_attention_layernorm.weight"},
      {"layers.{}.gate", "layers.{}.mlp.gate_proj.weight"},
      {"layers.{}.gate.bias", "layers.{}.mlp.gate_proj.bias"},
      {"layers.{}.up", "layers.{}.mlp.up_proj.weight"},
      {"layers.{}.up.bias", "layers.{}.mlp.up_proj.bias"},
      {"layers.{}.down", "layers.{}.mlp.down_proj.weight"},
      {"layers.{}.down.bias", "layers.{}.mlp.down_proj.bias"},
      {"final_norm", "norm.weight"},
  };
}

// The family of LLaMA 1, 2 and 3; its descendants change a field or two.
inline Family llama_like(std::string_view name, std::string_view model_type,
                         std::string_view architecture) {
  Family family;
  family.name = name;
  family.model_type = model_type;
  family.architectures = {architecture};
  family.keys = kLlamaKeys;
  family.activations = {"silu", "swish"};
  family.tensors = llama_tensors();
  family.prefixes = {"model.", ""};
  family.head = "lm_head.weight";
  family.ignored = {".rotary_emb.inv_freq"};
  return family;
}

}  // namespace leq
