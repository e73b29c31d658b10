#include "quantize/methods/zeroquant_plus.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "quantize/methods/code_errors.h"
#include "quantize/methods/descent.h"
#include "quantize/methods/method_table.h"
#include "quantize/methods/refit.h"
#include "quantize/methods/zeroquant.h"

namespace leq {
MethodResult choose_zeroquant_plus(const MethodInput& input) {
  ThreadPool alone(1);
  ThreadPool& pool = input.pool == nullptr ? alone : *input.pool;
  const Ranges plain = choose_ranges(input, fit_signed);
  ChosenCodes nearest = nearest_codes(input, plain);
  Hessian hessian = prepare_hessian(input, 0, pool);
  Ranges ranges = plain;
  std::vector<std::int16_t> codes = nearest.codes;
  descend(input, ranges, hessian, input.options.descent_passes, codes, pool);
  if (input.options.refit_scales) refit_scales(input, codes, hessian, ranges, pool);
  forget_dead_inputs(*input.statistics, hessian);
  const std::vector<double> before = row_losses(input, plain, nearest.codes, hessian, pool);
  const std::vector<double> after = row_losses(input, ranges, codes, hessian, pool);
  for (std::int64_t row = 0; row < input.rows; ++row) {
    if (!(after[static_cast<std::size_t>(row)] < before[static_cast<std::size_t>(row)])) continue;
    const std::int64_t first = row * input.columns, group = row * plain.per_row;
    std::copy_n(codes.begin() + first, input.columns, nearest.codes.begin() + first);
    std::copy_n(ranges.scales.begin() + group, plain.per_row, nearest.scales.begin() + group);
  }
  return {std::move(nearest), ""};
}

QuantMethod zeroquant_plus_method() {
  return {.name = "zeroquant+",
          .summary = "zeroquant with coordinate descent and scales solved again",
          .needs = Needs::hessian,
          .supports = supports_zeroquant,
          .choose = choose_zeroquant_plus,
          .teacher_inputs = true,
          .adds_biases = true,
          .own_type = "int8-g128"};
}

}  // namespace leq
