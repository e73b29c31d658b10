#include "quantize/tensor_plan.h"

#include "base/error.h"
#include "model/weights.h"

namespace leq {
namespace {

// What decides the format of a linear's input beside act: whether it comes with sums of codes, and
// over how many columns.
std::int64_t sums_of(const TensorPlan& plan, std::int64_t columns) {
  return plan.scheme.is_offset() ? sum_group(plan.scheme, plan.act, columns) : 0;
}

}  // namespace

TensorPlan plan_tensor(TensorRole role, const QuantScheme& type, bool tied, ActChoice act) {
  constexpr QuantScheme kF32 = {};
  if (role == TensorRole::vector || role == TensorRole::position_embedding)
    return {kF32, ActKind::none};
  if (type.is_float()) return {type, ActKind::none};
  const bool table = role == TensorRole::head || role == TensorRole::token_embedding;
  const QuantScheme scheme = table ? QuantScheme{CodeKind::int_, 8, Scaling::row, 0} : type;
  // nf4 and b1 weights take f32 inputs.
  if (act == ActChoice::none || !scheme.is_integer()) return {scheme, ActKind::none};
  switch (role) {
    case TensorRole::qkv:
    case TensorRole::gate_up:
      return {scheme, ActKind::row};
    case TensorRole::token_embedding:
      return {scheme, tied ? ActKind::g128 : ActKind::none};
    default:
      return {scheme, ActKind::g128};
  }
}

bool is_block_linear(TensorRole role) {
  return role == TensorRole::qkv || role == TensorRole::o || role == TensorRole::gate_up ||
         role == TensorRole::down;
}

void check_plan(const ModelConfig& config, const TensorPlanner& plan) {
  const TensorSpec* last = nullptr;
  TensorPlan last_plan;
  const std::vector<TensorSpec> specs = tensor_list(config);
  for (const TensorSpec& spec : specs) {
    if (spec.role != TensorRole::qkv && spec.role != TensorRole::gate_up) continue;
    const TensorPlan now = plan(spec.name, spec.role);
    const std::string layer = spec.name.substr(0, spec.name.rfind('.'));
    if (last != nullptr && last->role == spec.role && last->name.starts_with(layer + ".")) {
      require(now.act == last_plan.act &&
                  sums_of(now, spec.shape[1]) == sums_of(last_plan, spec.shape[1]),
              "tensors ", last->name, " (", scheme_name(last_plan.scheme), ", act ",
              act_name(last_plan.act), ") and ", spec.name, " (", scheme_name(now.scheme), ", act ",
              act_name(now.act),
              ") share their input but want it in different formats; give both the same type");
    }
    last = &spec;
    last_plan = now;
  }
}

}  // namespace leq
