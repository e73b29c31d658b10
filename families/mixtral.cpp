// Mixtral 8x7B and 8x22B: Mistral with experts in every layer.
#include "families/experts.h"
#include "families/llama.h"

namespace leq {

extern const Family kMixtral;
const Family kMixtral = [] {
  Family family = llama_like("Mixtral", "mixtral", "MixtralForCausalLM");
  family.defaults =
      R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 1e6})";
  family.windows = WindowRule::named;
  family.experts = ExpertKeys{.experts = "num_local_experts",
                              .active = "num_experts_per_tok",
                              .hidden = "intermediate_size",
                              .normalized = nullptr,
                              .sparse_step = nullptr,
                              .dense_layers = nullptr,
                              .shared_hidden = nullptr};
  const std::vector<TensorRule> rules = {
      {"layers.{}.router", "layers.{}.block_sparse_moe.gate.weight"},
      {"layers.{}.experts.{}.gate", "layers.{}.block_sparse_moe.experts.{}.w1.weight"},
      {"layers.{}.experts.{}.up", "layers.{}.block_sparse_moe.experts.{}.w3.weight"},
      {"layers.{}.experts.{}.down", "layers.{}.block_sparse_moe.experts.{}.w2.weight"},
  };
  family.tensors.insert(family.tensors.end(), rules.begin(), rules.end());
  add_stacked_experts(family);
  return family;
}();

}  // namespace leq
