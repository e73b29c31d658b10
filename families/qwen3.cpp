// Qwen 3, dense: norms over each head of q and k, head_dim independent of width / heads.
#include "families/llama.h"

namespace leq {

extern const Family kQwen3;
const Family kQwen3 = [] {
  Family family = llama_like("Qwen3", "qwen3", "Qwen3ForCausalLM");
  family.defaults = R"({"max_position_embeddings": 32768, "head_dim": 128})";
  family.qk_norm = true;
  family.attention_bias_key = "attention_bias";
  family.windows = WindowRule::upper_layers;
  return family;
}();

}  // namespace leq
