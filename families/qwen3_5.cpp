// Qwen 3.5, 3.6 and 3.8, dense: three layers of Gated DeltaNet, then one of gated attention.
#include "families/qwen3_5.h"

namespace leq {

extern const Family kQwen3_5;
const Family kQwen3_5 = [] {
  Family family = qwen3_5_like("Qwen3.5", "qwen3_5_text", "Qwen3_5ForCausalLM");
  add_delta_projections(family);
  return family;
}();

}  // namespace leq
