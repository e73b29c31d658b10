// LLaMA 1, 2, 3 and models with their architecture.
#include "families/llama.h"

namespace leq {

extern const Family kLlama;
const Family kLlama = [] {
  Family family = llama_like("LLaMA", "llama", "LlamaForCausalLM");
  family.defaults = R"({"max_position_embeddings": 2048})";
  family.attention_bias_key = "attention_bias";
  family.mlp_bias_key = "mlp_bias";
  return family;
}();

}  // namespace leq
