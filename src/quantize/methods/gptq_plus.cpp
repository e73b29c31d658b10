#include "quantize/methods/gptq_plus.h"

#include <string>

#include "quantize/methods/code_errors.h"
#include "quantize/methods/descent.h"
#include "quantize/methods/gptq.h"
#include "quantize/methods/method_table.h"
#include "quantize/methods/refit.h"
#include "quantize/methods/super_choice.h"

namespace leq {
namespace {

void improve(const MethodInput& input, const Hessian& hessian, RowChoice& choice,
             ThreadPool& pool) {
  descend(input, choice.ranges, hessian, input.options.descent_passes, choice.codes, pool);
  if (input.options.refit_scales) refit_scales(input, choice.codes, hessian, choice.ranges, pool);
}

}  // namespace

MethodResult choose_gptq_plus(const MethodInput& input) {
  if (input.scheme.is_super()) return choose_super_gptq(input, input.options.descent_passes);
  ThreadPool alone(1);
  ThreadPool& pool = input.pool == nullptr ? alone : *input.pool;
  Ranges plain = plain_ranges(input);
  Ranges weighted = weighted_ranges(input);
  share_scale_mul(plain, weighted, input.scheme);
  RowChoice choice, safe;
  std::string note;
  {
    const auto feedback = factor_hessian<float>(input, pool);
    note = damping_note(input, feedback);
    if (!feedback) return {nearest_codes(input, weighted), note};
    safe = feedback_choice(input, std::move(plain), *feedback, pool);
    choice = feedback_choice(input, weighted, *feedback, pool);
  }
  take_better_rows(safe, input, choice);
  Hessian hessian = prepare_hessian(input, 0, pool);
  improve(input, hessian, choice, pool);
  clear_dead_inputs(*input.statistics, hessian);
  safe.losses = row_losses(input, safe.ranges, safe.codes, hessian, pool);
  choice.losses = row_losses(input, choice.ranges, choice.codes, hessian, pool);
  take_better_rows(safe, input, choice);
  take_better_rows(nearest_choice(input, weighted, hessian, pool), input, choice);
  return result_of(std::move(choice), input, hessian, std::move(note), pool);
}

QuantMethod gptq_plus_method() {
  return {.name = "gptq+",
          .summary = "gptq with weighted ranges, coordinate descent and scales solved again",
          .needs = Needs::hessian,
          .supports = supports_gptq,
          .choose = choose_gptq_plus,
          .divides_rows = true,
          .own_type = "int4-g128"};
}

}  // namespace leq
