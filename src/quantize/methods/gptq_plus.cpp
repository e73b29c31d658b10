#include "quantize/methods/gptq_plus.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "quantize/methods/code_errors.h"
#include "quantize/methods/descent.h"
#include "quantize/methods/gptq.h"
#include "quantize/methods/method_table.h"
#include "quantize/methods/refit.h"

namespace leq {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// A choice of ranges and codes with the loss of each row.
struct Choice {
  Ranges ranges;
  std::vector<std::int16_t> codes;
  std::vector<double> losses;
};

Ranges weighted_ranges(const MethodInput& input) {
  if (input.scheme.scaling == Scaling::tensor) return plain_ranges(input);
  const RangeRule rule = input.scheme.kind == CodeKind::uint_ ? fit_weighted_zero : fit_weighted;
  return choose_ranges(input, rule, input_importance(input));
}

// Scales of both as multiples of one scale_mul, so that rows of either fit in one tensor.
void share_scale_mul(Ranges& left, Ranges& right, const QuantScheme& scheme) {
  const float shared = std::max(left.scale_mul, right.scale_mul);
  for (Ranges* ranges : {&left, &right}) {
    ranges->scale_mul = shared;
    for (std::size_t i = 0; i < ranges->scales.size(); ++i) {
      const float stored = stored_scale(ranges->scales[i], shared, scheme);
      const bool usable = ranges->divisors[i] != std::numeric_limits<float>::infinity();
      ranges->scales[i] = usable && stored != 0 ? stored : shared;
      if (stored == 0)
        ranges->divisors[i] = std::numeric_limits<float>::infinity();
      else if (usable)
        ranges->divisors[i] = stored;
    }
  }
}

void copy_row(const Choice& from, std::int64_t row, std::int64_t columns, Choice& to) {
  const std::int64_t groups = from.ranges.per_row;
  const auto copy = [row](const auto& source, auto& target, std::int64_t count) {
    if (!source.empty())
      std::copy_n(source.begin() + row * count, count, target.begin() + row * count);
  };
  copy(from.ranges.scales, to.ranges.scales, groups);
  copy(from.ranges.divisors, to.ranges.divisors, groups);
  copy(from.ranges.zeros, to.ranges.zeros, groups);
  copy(from.codes, to.codes, columns);
  to.losses[at(row)] = from.losses[at(row)];
}

// Rows of `other` where their loss is smaller; the whole where rows share one scale.
void take_better_rows(const Choice& other, const MethodInput& input, Choice& choice) {
  if (input.scheme.scaling == Scaling::tensor) {
    const auto total = [](const Choice& of) {
      return std::accumulate(of.losses.begin(), of.losses.end(), 0.0);
    };
    if (total(other) < total(choice)) choice = other;
    return;
  }
  for (std::int64_t row = 0; row < input.rows; ++row) {
    if (other.losses[at(row)] < choice.losses[at(row)]) copy_row(other, row, input.columns, choice);
  }
}

Choice with_feedback(const MethodInput& input, Ranges ranges, const Feedback<float>& feedback,
                     ThreadPool& pool) {
  FeedbackCodes found = choose_with_feedback(input, ranges, feedback, pool);
  return {std::move(ranges), std::move(found.codes), std::move(found.losses)};
}

void improve(const MethodInput& input, const Hessian& hessian, Choice& choice, ThreadPool& pool) {
  descend(input, choice.ranges, hessian, input.options.descent_passes, choice.codes, pool);
  if (input.options.refit_scales) refit_scales(input, choice.codes, hessian, choice.ranges, pool);
}

}  // namespace

MethodResult choose_gptq_plus(const MethodInput& input) {
  ThreadPool alone(1);
  ThreadPool& pool = input.pool == nullptr ? alone : *input.pool;
  Ranges plain = plain_ranges(input);
  Ranges weighted = weighted_ranges(input);
  share_scale_mul(plain, weighted, input.scheme);
  Choice choice, safe;
  std::string note;
  {
    const auto feedback = factor_hessian<float>(input, pool);
    note = damping_note(input, feedback);
    if (!feedback) return {nearest_codes(input, weighted), note};
    safe = with_feedback(input, std::move(plain), *feedback, pool);
    choice = with_feedback(input, std::move(weighted), *feedback, pool);
  }
  take_better_rows(safe, input, choice);
  const Hessian hessian = prepare_hessian(input, 0, pool);
  improve(input, hessian, choice, pool);
  safe.losses = row_losses(input, safe.ranges, safe.codes, hessian, pool);
  choice.losses = row_losses(input, choice.ranges, choice.codes, hessian, pool);
  take_better_rows(safe, input, choice);
  ChosenCodes chosen;
  chosen.codes = std::move(choice.codes);
  chosen.scales = std::move(choice.ranges.scales);
  chosen.zeros = std::move(choice.ranges.zeros);
  chosen.scale_mul = choice.ranges.scale_mul;
  return {std::move(chosen), note};
}

QuantMethod gptq_plus_method() {
  return {"gptq+", "gptq with weighted ranges, coordinate descent and scales solved again",
          Needs::hessian, supports_gptq, choose_gptq_plus};
}

}  // namespace leq
