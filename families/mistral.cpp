// Mistral 7B (sliding window in v0.1) and dense models with its architecture.
#include "families/llama.h"

namespace leq {

extern const Family kMistral;
const Family kMistral = [] {
  Family family = llama_like("Mistral", "mistral", "MistralForCausalLM");
  family.defaults = R"({"max_position_embeddings": 131072})";
  family.windows = WindowRule::all_layers;
  return family;
}();

}  // namespace leq
