#include "quantize/methods/zeroquant_plus.h"

#include <utility>

#include "quantize/methods/code_errors.h"
#include "quantize/methods/descent.h"
#include "quantize/methods/method_table.h"
#include "quantize/methods/refit.h"
#include "quantize/methods/row_choice.h"
#include "quantize/methods/zeroquant.h"

namespace leq {

MethodResult choose_zeroquant_plus(const MethodInput& input) {
  ThreadPool alone(1);
  ThreadPool& pool = input.pool == nullptr ? alone : *input.pool;
  const Ranges plain = choose_ranges(input, fit_signed);
  Hessian hessian = prepare_hessian(input, 0, pool);
  RowChoice improved = {plain, nearest_codes(input, plain).codes, {}};
  descend(input, improved.ranges, hessian, input.options.descent_passes, improved.codes, pool);
  if (input.options.refit_scales)
    refit_scales(input, improved.codes, hessian, improved.ranges, pool);
  clear_dead_inputs(*input.statistics, hessian);
  improved.losses = row_losses(input, improved.ranges, improved.codes, hessian, pool);
  RowChoice choice = nearest_choice(input, plain, hessian, pool);
  take_better_rows(improved, input, choice);
  return result_of(std::move(choice), input, hessian, "", pool);
}

QuantMethod zeroquant_plus_method() {
  return {.name = "zeroquant+",
          .summary = "zeroquant with coordinate descent and scales solved again",
          .needs = Needs::hessian,
          .supports = supports_zeroquant,
          .choose = choose_zeroquant_plus,
          .teacher_inputs = true,
          .adds_biases = true,
          .divides_rows = true,
          .own_type = "int8-g128"};
}

}  // namespace leq
