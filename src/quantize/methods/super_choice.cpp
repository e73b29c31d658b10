#include "quantize/methods/super_choice.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "quantize/methods/descent.h"
#include "quantize/methods/fit.h"
#include "quantize/methods/gptq.h"
#include "tensor/super_blocks.h"
#include "tensor/super_fit.h"

namespace leq {
namespace {

std::size_t place(std::int64_t i) { return static_cast<std::size_t>(i); }

// Superblock scales as a file stores them, and as ranges of codes without zero points.
struct SuperRanges {
  SuperLayout layout;
  std::vector<float> supers;       // [N][ceil(K/256)][layout.supers]
  std::vector<std::uint8_t> subs;  // [N][ceil(K/sub_columns)][layout.subs]
  std::vector<float> shifted;      // [N][K] W + min
  Ranges ranges;
  int zero = 0;  // stored code = code + zero
};

SuperRanges empty_ranges(const MethodInput& input) {
  SuperRanges result;
  const SuperLayout layout = result.layout = super_layout(input.scheme.kind);
  result.zero = input.scheme.kind == CodeKind::q6_k ? kSuper6Zero : 0;
  Ranges& ranges = result.ranges;
  ranges.group = layout.sub_columns;
  ranges.per_row = layout.sub_blocks(input.columns);
  ranges.limits = {-result.zero, (1 << input.scheme.bits) - 1 - result.zero};
  ranges.scales.resize(place(input.rows * ranges.per_row));
  ranges.divisors.resize(ranges.scales.size());
  result.subs.resize(place(input.rows * ranges.per_row * layout.subs));
  result.supers.resize(place(input.rows * layout.super_blocks(input.columns) * layout.supers));
  result.shifted.assign(input.weight.begin(), input.weight.end());
  return result;
}

// Sets scale and minimum of the sub-block at `column` to those that its superblock decodes to.
void set_range(const MethodInput& input, std::int64_t row, std::int64_t column, const float* supers,
               const std::uint8_t* sub, SuperRanges& to) {
  const bool has_min = to.layout.subs > 1;
  const int factor = has_min ? *sub : static_cast<std::int8_t>(*sub);
  const float scale = supers[0] * static_cast<float>(factor);
  const std::size_t range = to.ranges.index(row, column);
  to.ranges.scales[range] = scale;
  to.ranges.divisors[range] = scale == 0 ? std::numeric_limits<float>::infinity() : scale;
  if (!has_min) return;
  const float min = supers[1] * static_cast<float>(sub[1]);
  const std::int64_t end = std::min(column + to.layout.sub_columns, input.columns);
  for (std::int64_t k = column; k < end; ++k) to.shifted[place(row * input.columns + k)] += min;
}

void fit_row(const MethodInput& input, std::span<const float> importance, std::int64_t row,
             SuperRanges& to) {
  const SuperLayout& layout = to.layout;
  for (std::int64_t k = 0; k < input.columns; k += kSuperColumns) {
    const std::int64_t count = std::min(kSuperColumns, input.columns - k);
    float* supers = &to.supers[place(
        (row * layout.super_blocks(input.columns) + k / kSuperColumns) * layout.supers)];
    std::uint8_t* subs =
        &to.subs[place((row * to.ranges.per_row + k / layout.sub_columns) * layout.subs)];
    fit_super(input.scheme.kind,
              {input.weight.subspan(place(row * input.columns + k), place(count)),
               importance.empty() ? importance : importance.subspan(place(k), place(count)), supers,
               subs});
    for (std::int64_t sub = 0; sub * layout.sub_columns < count; ++sub) {
      set_range(input, row, k + sub * layout.sub_columns, supers, subs + sub * layout.subs, to);
    }
  }
}

SuperRanges super_ranges(const MethodInput& input) {
  require_finite(input);
  SuperRanges result = empty_ranges(input);
  const std::vector<float> importance = input_importance(input);
  for_rows(input.pool, input.rows,
           [&](std::int64_t row) { fit_row(input, importance, row, result); });
  return result;
}

MethodInput shifted_input(const MethodInput& input, const SuperRanges& super) {
  MethodInput shifted = input;
  shifted.weight = super.shifted;
  return shifted;
}

// Combines the codes of the shifted weight with the stored scales and minima.
ChosenCodes with_supers(std::vector<std::int16_t> codes, SuperRanges super) {
  for (std::int16_t& code : codes) code = static_cast<std::int16_t>(code + super.zero);
  return {
      .codes = std::move(codes), .scales = std::move(super.supers), .zeros = std::move(super.subs)};
}

}  // namespace

MethodResult choose_super_rtn(const MethodInput& input) {
  SuperRanges super = super_ranges(input);
  ChosenCodes nearest = nearest_codes(shifted_input(input, super), super.ranges);
  return {with_supers(std::move(nearest.codes), std::move(super)), ""};
}

MethodResult choose_super_gptq(const MethodInput& input, int descent_passes) {
  ThreadPool alone(1);
  ThreadPool& pool = input.pool == nullptr ? alone : *input.pool;
  SuperRanges super = super_ranges(input);
  const MethodInput shifted = shifted_input(input, super);
  RowChoice choice;
  std::string note;
  {
    const auto feedback = factor_hessian<float>(input, pool);
    note = damping_note(input, feedback);
    if (!feedback) {
      ChosenCodes nearest = nearest_codes(shifted, super.ranges);
      return {with_supers(std::move(nearest.codes), std::move(super)), note};
    }
    choice = feedback_choice(shifted, super.ranges, *feedback, pool);
  }
  Hessian hessian = prepare_hessian(input, 0, pool);
  if (descent_passes > 0) {
    descend(shifted, super.ranges, hessian, descent_passes, choice.codes, pool);
  }
  forget_dead_inputs(*input.statistics, hessian);
  choice.losses = row_losses(shifted, super.ranges, choice.codes, hessian, pool);
  take_better_rows(nearest_choice(shifted, super.ranges, hessian, pool), shifted, choice);
  MethodResult result = result_of(std::move(choice), input, hessian, std::move(note), pool);
  result.codes = with_supers(std::move(result.codes.codes), std::move(super));
  return result;
}

}  // namespace leq
