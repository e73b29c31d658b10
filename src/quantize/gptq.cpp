#include "quantize/gptq.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "quantize/dense.h"
#include "quantize/method_table.h"

namespace leq {
namespace {

constexpr std::int64_t kTaskRows = 128;  // rows are independent of one another
constexpr std::int64_t kBlockColumns = 128;
constexpr std::int64_t kStepColumns = 8;  // rounded one by one; the rest is products of matrices

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// A task's rows, columns in the order of rounding.
template <class Real>
struct RowTile {
  std::int64_t first = 0, count = 0;
  std::vector<Real> weight;       // [count][K]
  std::vector<Real> differences;  // [count][K] w - q of the columns done
  std::vector<Real> targets;      // [count][kBlockColumns] w + the errors fed back
};

template <class Real>
RowTile<Real> take_rows(const MethodInput& input, const Feedback<Real>& feedback,
                        std::int64_t first) {
  const std::int64_t columns = input.columns;
  RowTile<Real> tile;
  tile.first = first;
  tile.count = std::min(kTaskRows, input.rows - first);
  tile.weight.resize(at(tile.count * columns));
  tile.differences.resize(at(tile.count * columns));
  tile.targets.resize(at(tile.count * kBlockColumns));
  for (std::int64_t row = 0; row < tile.count; ++row) {
    const float* from = input.weight.data() + (first + row) * columns;
    Real* to = tile.weight.data() + row * columns;
    for (std::int64_t i = 0; i < columns; ++i)
      to[i] = static_cast<Real>(from[feedback.order[at(i)]]);
  }
  return tile;
}

// Rounds the columns of one step in one row. `targets` are the row's in this step, `start` the
// step's first column in order.
template <class Real>
double round_step(const Ranges& ranges, const Feedback<Real>& feedback, RowTile<Real>& tile,
                  std::int64_t row, std::int64_t start, std::int64_t count, Real* targets,
                  std::int16_t* codes) {
  const std::int64_t columns = std::ssize(feedback.order);
  double loss = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t column = feedback.order[at(start + i)];
    const std::size_t range = ranges.index(tile.first + row, column);
    const int zero = ranges.zero(range);
    const int code =
        nearest_code(static_cast<float>(targets[i]), ranges.divisors[range], zero, ranges.limits);
    codes[(tile.first + row) * columns + column] = static_cast<std::int16_t>(code);
    const Real value = static_cast<Real>(ranges.scales[range]) * static_cast<Real>(code - zero);
    const auto error = static_cast<double>(targets[i] - value);
    loss += feedback.pivots[at(start + i)] * error * error;
    const Real difference = tile.weight[at(row * columns + start + i)] - value;
    tile.differences[at(row * columns + start + i)] = difference;
    const Real* factor = feedback.factor.data() + (start + i) * columns + start;
    for (std::int64_t j = i + 1; j < count; ++j) targets[j] += difference * factor[j];
  }
  return loss;
}

// targets[:, from...] += differences[:, first...first + depth] A[first..., start...], `from`
// counted within the block that begins at column `block`.
template <class Real>
void feed_back(const Feedback<Real>& feedback, RowTile<Real>& tile, std::int64_t first,
               std::int64_t depth, std::int64_t start, std::int64_t count, std::int64_t from) {
  const std::int64_t columns = std::ssize(feedback.order);
  add_product(
      Block<const Real>{tile.differences.data() + first, tile.count, depth, columns},
      Block<const Real>{feedback.factor.data() + first * columns + start, depth, count, columns},
      Block<Real>{tile.targets.data() + from, tile.count, count, kBlockColumns});
}

template <class Real>
void round_block(const Ranges& ranges, const Feedback<Real>& feedback, RowTile<Real>& tile,
                 std::int64_t block, FeedbackCodes& result) {
  const std::int64_t columns = std::ssize(feedback.order);
  const std::int64_t width = std::min(kBlockColumns, columns - block);
  for (std::int64_t row = 0; row < tile.count; ++row) {
    std::copy_n(tile.weight.data() + row * columns + block, width,
                tile.targets.data() + row * kBlockColumns);
  }
  feed_back(feedback, tile, 0, block, block, width, 0);
  for (std::int64_t from = 0; from < width; from += kStepColumns) {
    const std::int64_t count = std::min(kStepColumns, width - from);
    feed_back(feedback, tile, block, from, block + from, count, from);
    for (std::int64_t row = 0; row < tile.count; ++row) {
      result.losses[at(tile.first + row)] +=
          round_step(ranges, feedback, tile, row, block + from, count,
                     tile.targets.data() + row * kBlockColumns + from, result.codes.data());
    }
  }
}

}  // namespace

template <class Real>
FeedbackCodes choose_with_feedback(const MethodInput& input, const Ranges& ranges,
                                   const Feedback<Real>& feedback, ThreadPool& pool) {
  FeedbackCodes result;
  result.codes.resize(at(input.rows * input.columns));
  result.losses.resize(at(input.rows));
  pool.run((input.rows + kTaskRows - 1) / kTaskRows, [&](std::int64_t task, int) {
    RowTile<Real> tile = take_rows(input, feedback, task * kTaskRows);
    for (std::int64_t block = 0; block < input.columns; block += kBlockColumns)
      round_block(ranges, feedback, tile, block, result);
  });
  return result;
}

template FeedbackCodes choose_with_feedback(const MethodInput&, const Ranges&,
                                            const Feedback<float>&, ThreadPool&);
template FeedbackCodes choose_with_feedback(const MethodInput&, const Ranges&,
                                            const Feedback<double>&, ThreadPool&);

Ranges plain_ranges(const MethodInput& input) {
  return choose_ranges(input, input.scheme.kind == CodeKind::uint_ ? fit_minmax : fit_signed);
}

std::string damping_note(const MethodInput& input, const std::optional<Feedback<float>>& feedback) {
  constexpr std::string_view kAdvice = "more calibration tokens would help";
  std::ostringstream note;
  if (!feedback) {
    note << "rounded to nearest: X^T X is not positive definite, even with damping 1; " << kAdvice;
  } else if (feedback->damping != input.options.damping) {
    note << "damping raised from " << input.options.damping << " to " << feedback->damping
         << ", X^T X is not positive definite; " << kAdvice;
  }
  return note.str();
}

bool supports_gptq(const QuantScheme& scheme) {
  return scheme.kind == CodeKind::int_ || scheme.kind == CodeKind::uint_;
}

MethodResult choose_gptq(const MethodInput& input) {
  ThreadPool alone(1);
  ThreadPool& pool = input.pool == nullptr ? alone : *input.pool;
  Ranges ranges = plain_ranges(input);
  const auto feedback = factor_hessian<float>(input, pool);
  ChosenCodes chosen = nearest_codes(input, ranges);
  if (feedback) chosen.codes = choose_with_feedback(input, ranges, *feedback, pool).codes;
  return {std::move(chosen), damping_note(input, feedback)};
}

QuantMethod gptq_method() {
  return {"gptq", "rounding errors made good in later columns (int and uint types)", Needs::hessian,
          supports_gptq, choose_gptq};
}

}  // namespace leq
