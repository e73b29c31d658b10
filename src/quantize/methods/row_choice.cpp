#include "quantize/methods/row_choice.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "quantize/methods/code_errors.h"
#include "quantize/methods/refit.h"

namespace leq {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

void copy_row(const RowChoice& from, std::int64_t row, std::int64_t columns, RowChoice& to) {
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

}  // namespace

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

RowChoice nearest_choice(const MethodInput& input, const Ranges& ranges, const Hessian& hessian,
                         ThreadPool& pool) {
  RowChoice choice = {ranges, nearest_codes(input, ranges).codes, {}};
  choice.losses = row_losses(input, choice.ranges, choice.codes, hessian, pool);
  return choice;
}

void take_better_rows(const RowChoice& other, const MethodInput& input, RowChoice& choice) {
  if (input.scheme.scaling == Scaling::tensor) {
    const auto total = [](const RowChoice& of) {
      return std::accumulate(of.losses.begin(), of.losses.end(), 0.0);
    };
    if (total(other) < total(choice)) choice = other;
    return;
  }
  for (std::int64_t row = 0; row < input.rows; ++row) {
    if (other.losses[at(row)] < choice.losses[at(row)]) copy_row(other, row, input.columns, choice);
  }
}

MethodResult result_of(RowChoice choice, const MethodInput& input, const Hessian& hessian,
                       std::string note, ThreadPool& pool) {
  MethodResult result;
  result.codes.codes = std::move(choice.codes);
  result.codes.scales = std::move(choice.ranges.scales);
  result.codes.zeros = std::move(choice.ranges.zeros);
  result.codes.scale_mul = choice.ranges.scale_mul;
  result.note = std::move(note);
  result.outputs = {std::move(choice.losses), row_energies(input.weight, hessian, pool)};
  return result;
}

}  // namespace leq
