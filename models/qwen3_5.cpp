// Qwen 3.5, 3.6 and 3.8, dense: three layers of Gated DeltaNet, then one of gated attention.
#include "models/qwen3_5.h"

namespace leq {

extern const Family kQwen3_5;
const Family kQwen3_5 = [] {
  Family family = qwen3_5_like("Qwen3.5", "qwen3_5_text", "Qwen3_5ForCausalLM");
  const std::vector<TensorRule> projections = {
      {"layers.{}.delta_qkv", "layers.{}.linear_attn.in_proj_qkv.weight"},
      {"layers.{}.delta_z", "layers.{}.linear_attn.in_proj_z.weight"},
      {"layers.{}.delta_b", "layers.{}.linear_attn.in_proj_b.weight"},
      {"layers.{}.delta_a", "layers.{}.linear_attn.in_proj_a.weight"},
  };
  family.tensors.insert(family.tensors.end(), projections.begin(), projections.end());
  return family;
}();

}  // namespace leq
