// Muse Glimmer, Meta's successor of LLaMA: three layers with a window and RoPE, then one with full
// attention and no RoPE; norms of embeddings, heads and sublayer outputs; an output gate of
// attention; capped logits.
#include "families/llama.h"

namespace leq {
namespace {

TensorRule constant(std::string_view leq) {
  TensorRule rule = {leq, ""};
  rule.constant = 1;
  return rule;
}

std::vector<TensorRule> muse_tensors() {
  TensorRule embedding = {"token_embedding", "embed_tokens.weight"};
  embedding.normed_rows = true;
  return {
      embedding,
      around_zero("layers.{}.attention_norm", "layers.{}.input_layernorm.weight"),
      {"layers.{}.q", "layers.{}.self_attn.q_proj.weight"},
      {"layers.{}.k", "layers.{}.self_attn.k_proj.weight"},
      {"layers.{}.v", "layers.{}.self_attn.v_proj.weight"},
      {"layers.{}.attention_gate", "layers.{}.self_attn.gate_proj.weight"},
      constant("layers.{}.q_norm"),  // qk_scale_factor
      constant("layers.{}.k_norm"),
      {"layers.{}.o", "layers.{}.self_attn.o_proj.weight"},
      around_zero("layers.{}.attention_post_norm", "layers.{}.post_attention_layernorm.weight"),
      around_zero("layers.{}.mlp_norm", "layers.{}.pre_feedforward_layernorm.weight"),
      {"layers.{}.gate", "layers.{}.mlp.gate_proj.weight"},
      {"layers.{}.up", "layers.{}.mlp.up_proj.weight"},
      {"layers.{}.down", "layers.{}.mlp.down_proj.weight"},
      around_zero("layers.{}.mlp_post_norm", "layers.{}.post_feedforward_layernorm.weight"),
      {"final_norm", "norm.weight"},
  };
}

}  // namespace

extern const Family kMuseGlimmer;
const Family kMuseGlimmer = [] {
  Family family = llama_like("Muse Glimmer", "muse_glimmer_text", "MuseGlimmerForCausalLM");
  family.keys.activation = "hidden_activation";
  family.tensors = muse_tensors();
  family.default_head_dim = 128;
  family.windows = WindowRule::all_but_fourths;
  family.qk_norm = true;
  family.output_gate = true;
  family.is_muse = true;
  family.fixed = {{"attention_bias", false}};
  return family;
}();

}  // namespace leq
