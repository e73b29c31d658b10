// Qwen 3 with experts: attention as in qwen3.cpp; some layers may have a dense MLP.
#include "families/experts.h"
#include "families/llama.h"

namespace leq {

extern const Family kQwen3Moe;
const Family kQwen3Moe = [] {
  Family family = llama_like("Qwen3-MoE", "qwen3_moe", "Qwen3MoeForCausalLM");
  family.defaults = R"({"max_position_embeddings": 32768})";
  family.qk_norm = true;
  family.attention_bias_key = "attention_bias";
  family.windows = WindowRule::switched;
  family.experts = ExpertKeys{.experts = "num_experts",
                              .active = "num_experts_per_tok",
                              .hidden = "moe_intermediate_size",
                              .normalized = "norm_topk_prob",
                              .sparse_step = "decoder_sparse_step",
                              .dense_layers = "mlp_only_layers",
                              .shared_hidden = nullptr};
  add_single_experts(family);
  add_stacked_experts(family);
  return family;
}();

}  // namespace leq
