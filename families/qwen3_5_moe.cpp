// Qwen 3.5 and 3.6 with experts: the layers of qwen3_5.cpp, each with a router and a shared expert.
#include "families/experts.h"
#include "families/qwen3_5.h"

namespace leq {

extern const Family kQwen3_5Moe;
const Family kQwen3_5Moe = [] {
  Family family = qwen3_5_like("Qwen3.5-MoE", "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM");
  add_delta_projections(family);
  family.keys.hidden = "moe_intermediate_size";  // no layer is dense
  family.experts = kQwenSharedExpertKeys;
  add_single_experts(family);
  add_stacked_experts(family);
  add_shared_expert(family);
  return family;
}();

}  // namespace leq
