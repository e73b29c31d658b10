// Qwen 2 and 2.5, dense: biases on q, k and v.
#include "families/llama.h"

namespace leq {

extern const Family kQwen2;
const Family kQwen2 = [] {
  Family family = llama_like("Qwen2", "qwen2", "Qwen2ForCausalLM");
  family.defaults = R"({"max_position_embeddings": 32768})";
  family.qkv_bias = true;
  family.windows = WindowRule::upper_layers;
  return family;
}();

}  // namespace leq
