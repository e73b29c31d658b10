// Ministral 3, Devstral 2 and Mistral Medium 3.5: LLaMA's architecture with YaRN and a query
// temperature that grows with the position.
#include "families/llama.h"

namespace leq {

extern const Family kMinistral3;
const Family kMinistral3 = [] {
  Family family = llama_like("Ministral 3", "ministral3", "Ministral3ForCausalLM");
  family.windows = WindowRule::named;
  family.default_head_dim = 128;
  family.query_temperature = true;
  return family;
}();

}  // namespace leq
