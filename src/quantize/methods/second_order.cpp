#include "quantize/methods/second_order.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "quantize/linear_algebra/matrix.h"
#include "quantize/linear_algebra/tile_kernels.h"
#include "quantize/methods/method.h"
#include "ranks/communicator.h"
#include "tensor/code_formats.h"

namespace leq {
namespace {

void require_sizes(const ChosenCodes& chosen, std::int64_t rows, std::int64_t columns,
                   const ChosenCounts& counts) {
  ensure(std::ssize(chosen.codes) == rows * columns, "dequantize: expected ", rows, " x ", columns,
         " codes, found ", chosen.codes.size());
  ensure(std::ssize(chosen.scales) == counts.scales, "dequantize: expected ", counts.scales,
         " scales, found ", chosen.scales.size());
  ensure(std::ssize(chosen.zeros) == counts.zeros, "dequantize: expected ", counts.zeros,
         " zeros, found ", chosen.zeros.size());
}

double square(double value) { return value * value; }

// Sums the terms of all ranks' rows in row order.
double sum_over_rows(Communicator& ranks, std::vector<double> terms) {
  const auto all = join_lists(ranks, std::move(terms), "errors of rows");
  return std::accumulate(all.begin(), all.end(), 0.0);
}

double ratio(double error, double energy) { return energy > 0 ? error / energy : 0; }

double weighted_error(const WeightPair& pair, std::span<const double> weights) {
  const auto sum = [&](bool difference) {
    std::vector<double> terms(static_cast<std::size_t>(pair.rows));
    for_rows(pair.pool, pair.rows, [&](std::int64_t row) {
      double total = 0;
      for (std::int64_t k = 0; k < pair.columns; ++k) {
        const auto i = static_cast<std::size_t>(row * pair.columns + k);
        const auto wanted = static_cast<double>(pair.wanted[i]);
        const double value = difference ? wanted - static_cast<double>(pair.found[i]) : wanted;
        total += (weights.empty() ? 1.0 : weights[static_cast<std::size_t>(k)]) * square(value);
      }
      terms[static_cast<std::size_t>(row)] = total;
    });
    return sum_over_rows(*pair.ranks, std::move(terms));
  };
  return ratio(sum(true), sum(false));
}

}  // namespace

std::vector<float> dequantize(const ChosenCodes& chosen, std::int64_t rows, std::int64_t columns,
                              const QuantScheme& scheme) {
  require_sizes(chosen, rows, columns, chosen_counts(scheme, rows, columns));
  if (const CodeFormat* format = code_format(scheme.kind)) {
    return format->dequantize(chosen, rows, columns);
  }
  const std::int64_t group = scheme.scaling == Scaling::group ? scheme.group : columns;
  const std::int64_t per_row = (columns + group - 1) / group;
  const bool has_zeros = scheme.kind == CodeKind::uint_;
  std::vector<float> values(chosen.codes.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = 0; k < columns; ++k) {
      const auto i = static_cast<std::size_t>(row * columns + k);
      const auto at = static_cast<std::size_t>(row * per_row + k / group);
      const int code = chosen.codes[i];
      values[i] =
          chosen.scales[at] * static_cast<float>(has_zeros ? code - chosen.zeros[at] : code);
    }
  }
  return values;
}

double weight_error(const WeightPair& pair) { return weighted_error(pair, {}); }

double diagonal_error(const WeightPair& pair, const InputStatistics& statistics) {
  ensure(std::ssize(statistics.square_sum) == pair.columns, "error: expected mean squares of ",
         pair.columns, " columns, found ", statistics.square_sum.size());
  return weighted_error(pair, statistics.square_sum);
}

double proxy_error(const WeightPair& pair, const InputStatistics& statistics) {
  ensure(!statistics.hessian.empty(), "error: the proxy loss needs X^T X; gather it");
  std::vector<float> difference(pair.wanted.size());
  for (std::size_t i = 0; i < difference.size(); ++i) {
    difference[i] = pair.wanted[i] - pair.found[i];
  }
  const OutputWeights weights(statistics, pair.pool);
  return proxy_error({weights.errors(difference), weights.errors(pair.wanted)}, *pair.ranks);
}

double proxy_error(const OutputErrors& outputs, Communicator& ranks) {
  return ratio(sum_over_rows(ranks, outputs.errors), sum_over_rows(ranks, outputs.energies));
}

std::vector<float> mean_difference(const WeightPair& pair, const InputStatistics& statistics) {
  require(std::ssize(statistics.sum) == pair.columns && statistics.tokens > 0,
          "the statistics have the mean inputs of ", statistics.sum.size(), " columns and ",
          statistics.tokens, " tokens, the weights have ", pair.columns,
          " columns; calibrate this model");
  std::vector<float> result(static_cast<std::size_t>(pair.rows));
  for_rows(pair.pool, pair.rows, [&](std::int64_t row) {
    double total = 0;
    for (std::int64_t k = 0; k < pair.columns; ++k) {
      const auto i = static_cast<std::size_t>(row * pair.columns + k);
      total += (static_cast<double>(pair.wanted[i]) - static_cast<double>(pair.found[i])) *
               statistics.sum[static_cast<std::size_t>(k)];
    }
    result[static_cast<std::size_t>(row)] =
        static_cast<float>(total / static_cast<double>(statistics.tokens));
  });
  return result;
}

OutputWeights::OutputWeights(const InputStatistics& statistics, ThreadPool* pool)
    : statistics_(statistics), pool_(pool) {
  if (statistics.hessian.empty()) return;
  MethodInput input;
  input.name = "the error of the outputs";
  input.columns = statistics.columns;
  input.statistics = &statistics;
  ThreadPool alone(1);
  hessian_ = prepare_hessian(input, 0, pool == nullptr ? alone : *pool);
  clear_dead_inputs(statistics, *hessian_);
}

std::vector<double> OutputWeights::errors(std::span<const float> rows) const {
  const std::int64_t columns = statistics_.columns;
  ensure(columns > 0 && std::ssize(rows) % columns == 0, "error: expected rows of ", columns,
         " columns, found ", rows.size(), " values");
  ThreadPool alone(1);
  if (hessian_) return row_energies(rows, *hessian_, pool_ == nullptr ? alone : *pool_);
  std::vector<double> errors(rows.size() / static_cast<std::size_t>(columns));
  for_rows(pool_, std::ssize(errors), [&](std::int64_t row) {
    const auto first = static_cast<std::size_t>(row * columns);
    double total = 0;
    for (std::size_t k = 0; k < static_cast<std::size_t>(columns); ++k) {
      total += statistics_.square_sum[k] * square(static_cast<double>(rows[first + k]));
    }
    errors[static_cast<std::size_t>(row)] = total;
  });
  return errors;
}

namespace {

constexpr double kFirstRaise = 0.01;  // first damping above 0
constexpr double kMaxDamping = 1.0;

constexpr std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// The diagonal of H, with 1 for inputs that were always 0.
std::vector<double> positive_diagonal(const MethodInput& input) {
  const std::int64_t n = input.columns;
  const InputStatistics* statistics = input.statistics;
  require(statistics != nullptr && std::ssize(statistics->hessian) == n * n, input.name,
          ": expected X^T X of ", n, " inputs, the statistics hold ",
          statistics == nullptr ? 0 : statistics->hessian.size(),
          " values; calibrate with the Hessian of this linear");
  std::vector<double> diagonal(at(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = statistics->hessian[at(i * n + i)];
    require(std::isfinite(value) && value >= 0, input.name, ": X^T X has ", value, " at input ", i,
            "; expected a finite number that is not negative, calibrate again");
    diagonal[at(i)] = value == 0 ? 1.0 : value;
  }
  return diagonal;
}

std::vector<std::int32_t> column_order(const std::vector<double>& diagonal, bool by_size) {
  std::vector<std::int32_t> order(diagonal.size());
  std::iota(order.begin(), order.end(), 0);
  if (by_size) {
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t left, std::int32_t right) {
      return diagonal[at(left)] > diagonal[at(right)];
    });
  }
  return order;
}

// The lower triangle of H in the given column order, with its diagonal times 1 + damping.
void gather_lower(const std::vector<double>& hessian, const std::vector<double>& diagonal,
                  const std::vector<std::int32_t>& order, double damping, LowerMatrix& out,
                  ThreadPool& pool) {
  const std::int64_t n = std::ssize(order);
  pool.run(n, [&](std::int64_t i, int) {
    const double* from = hessian.data() + order[at(i)] * n;
    for (std::int64_t panel = 0; panel <= i / LowerMatrix::kLanes; ++panel) {
      double* const to = out.row(panel, i);
      const std::int64_t first = panel * LowerMatrix::kLanes;
      const std::int64_t last = std::min(i, first + LowerMatrix::kLanes);
      for (std::int64_t j = first; j < last; ++j) to[j - first] = from[order[at(j)]];
    }
    out.at(i, i) = diagonal[at(order[at(i)])] * (1.0 + damping);
  });
}

// Splits H = L^T L into A D A^T: A_ki = L_ik / L_ii.
void split_factor(const LowerMatrix& l, Feedback& feedback, ThreadPool& pool) {
  const std::int64_t n = std::ssize(feedback.order);
  std::vector<double> inverse(at(n));
  feedback.pivots.resize(at(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const double pivot = l.at(i, i);
    feedback.pivots[at(i)] = pivot * pivot;
    inverse[at(i)] = 1.0 / pivot;
  }
  feedback.factor = slice_columns(
      n, pool, [](std::int64_t i) { return i; },
      [&](std::int64_t k, std::int64_t i) {
        return static_cast<float>(l.at(i, k) * inverse[at(i)]);
      });
}

}  // namespace

double shrinkage_of(std::int64_t columns, std::int64_t tokens) {
  constexpr double kShare = 4;  // SmolLM2, 4,096 tokens: 0.3 halves the loss of 0.01; 1 is better
  if (tokens <= 0) return 0;
  return std::min(1.0, kShare * static_cast<double>(columns) / static_cast<double>(tokens));
}

Hessian prepare_hessian(const MethodInput& input, double damping, ThreadPool& pool) {
  const std::vector<double> diagonal = positive_diagonal(input);
  const std::int64_t n = input.columns;
  const double added = damping + input.options.shrinkage;
  const double mean =
      std::accumulate(diagonal.begin(), diagonal.end(), 0.0) / static_cast<double>(n);
  const double factor = std::ldexp(1.0, -std::ilogb(mean));
  Hessian result;
  result.columns = n;
  const double* h = input.statistics->hessian.data();
  result.values = slice_columns(
      n, pool, [n](std::int64_t) { return n; },
      [&](std::int64_t k, std::int64_t i) {
        const double value = k == i ? diagonal[at(i)] * (1.0 + added) : h[i * n + k];
        return static_cast<float>(value * factor);
      });
  return result;
}

void clear_dead_inputs(const InputStatistics& statistics, Hessian& hessian) {
  for (std::int64_t k = 0; k < hessian.columns; ++k) {
    if (statistics.hessian[at(k * (hessian.columns + 1))] == 0) hessian.values.at(k, k) = 0;
  }
}

std::optional<Feedback> factor_hessian(const MethodInput& input, ThreadPool& pool) {
  const std::vector<double> diagonal = positive_diagonal(input);
  Feedback feedback;
  feedback.order = column_order(diagonal, input.options.act_order);
  LowerMatrix l(input.columns);
  for (double damping = input.options.damping;;) {
    gather_lower(input.statistics->hessian, diagonal, feedback.order,
                 damping + input.options.shrinkage, l, pool);
    if (factor_lower(l, pool, *input.ranks)) {
      feedback.damping = damping;
      split_factor(l, feedback, pool);
      return feedback;
    }
    if (damping >= kMaxDamping) return std::nullopt;
    damping = std::min(kMaxDamping, damping > 0 ? damping * 10 : kFirstRaise);
  }
}

namespace {

constexpr std::int64_t kLanes = kPanelLanes<float>;
constexpr std::int64_t kTaskRows = kTaskPanels * kLanes;

// As H is symmetric, the products of a block's columns with columns before the block count twice.
void add_losses(const LanePanels<float>& errors, std::int64_t panels, const Hessian& hessian,
                std::span<double> losses) {
  LanePanels<float> product(panels, kBlockDepth);
  std::vector<double> twice(losses.size());
  for (std::int64_t block = 0; block < hessian.columns; block += kBlockDepth) {
    const std::int64_t width = std::min(kBlockDepth, hessian.columns - block);
    const auto add = [&](IndexRange depth, std::vector<double>& sums) {
      for (std::int64_t panel = 0; panel < panels; ++panel)
        std::fill_n(product.at(panel, 0), width * kLanes, 0.0f);
      add_lane_product(hessian.values, LaneProduct{.depth = depth,
                                                   .columns = {block, block + width},
                                                   .b = errors,
                                                   .c = product,
                                                   .panels = panels});
      for (std::int64_t panel = 0; panel < panels; ++panel) {
        tile_kernels().add_dots(errors.at(panel, block), product.at(panel, 0), width,
                                &sums[at(panel * kLanes)]);
      }
    };
    std::vector<double> once(losses.size());
    add({0, block}, twice);
    add({block, block + width}, once);
    for (std::size_t i = 0; i < losses.size(); ++i) losses[i] += once[i];
  }
  for (std::size_t i = 0; i < losses.size(); ++i) losses[i] += 2 * twice[i];
}

// `errors(first, count)` returns rows in lanes.
template <class Errors>
std::vector<double> losses_of_rows(std::int64_t rows, const Hessian& hessian, ThreadPool& pool,
                                   const Errors& errors) {
  std::vector<double> losses(at(rows));
  pool.run((rows + kTaskRows - 1) / kTaskRows, [&](std::int64_t task, int) {
    const std::int64_t first = task * kTaskRows, count = std::min(kTaskRows, rows - first);
    const std::int64_t panels = (count + kLanes - 1) / kLanes;
    std::vector<double> lanes(at(panels * kLanes));
    add_losses(errors(first, count), panels, hessian, lanes);
    std::copy_n(lanes.begin(), count, losses.begin() + first);
  });
  return losses;
}

}  // namespace

LanePanels<float> code_errors(const MethodInput& input, const Ranges& ranges,
                              std::span<const std::int16_t> codes, std::int64_t first,
                              std::int64_t count) {
  const std::int64_t columns = input.columns;
  LanePanels<float> errors((count + kLanes - 1) / kLanes, columns);
  std::vector<float> rows(at(kLanes * columns));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = first + i;
    const float* weight = input.weight.data() + row * columns;
    const std::int16_t* code = codes.data() + row * columns;
    float* to = rows.data() + i % kLanes * columns;
    for (std::int64_t start = 0; start < columns; start += ranges.group) {
      const std::size_t range = ranges.index(row, start);
      const int zero = ranges.zero(range);
      const float scale = ranges.scales[range];
      const std::int64_t end = std::min(start + ranges.group, columns);
      for (std::int64_t k = start; k < end; ++k)
        to[k] = weight[k] - scale * static_cast<float>(code[k] - zero);
    }
    if (i % kLanes == kLanes - 1 || i == count - 1) {
      rows_to_lanes(rows.data(), columns, i % kLanes + 1, columns, errors.at(i / kLanes, 0),
                    kLanes);
    }
  }
  return errors;
}

std::vector<double> row_energies(std::span<const float> rows, const Hessian& hessian,
                                 ThreadPool& pool) {
  const std::int64_t columns = hessian.columns;
  return losses_of_rows(
      std::ssize(rows) / columns, hessian, pool, [&](std::int64_t first, std::int64_t count) {
        LanePanels<float> lanes((count + kLanes - 1) / kLanes, columns);
        for (std::int64_t row = 0; row < count; row += kLanes) {
          rows_to_lanes(rows.data() + (first + row) * columns, columns,
                        std::min(kLanes, count - row), columns, lanes.at(row / kLanes, 0), kLanes);
        }
        return lanes;
      });
}

std::vector<double> row_losses(const MethodInput& input, const Ranges& ranges,
                               std::span<const std::int16_t> codes, const Hessian& hessian,
                               ThreadPool& pool) {
  return losses_of_rows(input.rows, hessian, pool, [&](std::int64_t first, std::int64_t count) {
    return code_errors(input, ranges, codes, first, count);
  });
}

namespace {

constexpr std::int64_t kStepColumns = kTileRows;
// A move by one reduces the loss if |g / (H s)| > 0.5. The margin covers rounding errors of g.
constexpr float kLeastMove = 0.501f;

// The rows of one task, stored in the lanes of panels.
class DescentRows {
 public:
  DescentRows(const MethodInput& input, const Ranges& ranges, const Hessian& hessian,
              std::span<std::int16_t> codes, std::int64_t first)
      : hessian_(hessian),
        limits_(ranges.limits),
        stored_(codes),
        columns_(input.columns),
        first_(first),
        count_(std::min(kTaskRows, input.rows - first)),
        panels_((count_ + kLanes - 1) / kLanes),
        errors_(code_errors(input, ranges, codes, first, count_)),
        gradients_(panels_, kBlockDepth),
        changes_(panels_, kBlockDepth),
        codes_(at(panels_ * columns_ * kLanes)) {
    for (std::int64_t panel = 0; panel < panels_; ++panel) {
      const std::int64_t row = first + panel * kLanes;
      rows_to_lanes(codes.data() + row * columns_, columns_, rows_in(panel), columns_,
                    codes_.data() + panel * columns_ * kLanes, kLanes);
      ranges_.emplace_back(ranges, row, rows_in(panel), kLanes);
    }
  }

  // One pass over all columns; returns the number of moves.
  std::int64_t sweep() {
    std::int64_t moves = 0;
    for (std::int64_t block = 0; block < columns_; block += kBlockDepth)
      moves += sweep_block(block);
    return moves;
  }

  void store() const {
    for (std::int64_t panel = 0; panel < panels_; ++panel) {
      lanes_to_rows(codes_.data() + panel * columns_ * kLanes, kLanes, rows_in(panel), columns_,
                    stored_.data() + (first_ + panel * kLanes) * columns_, columns_);
    }
  }

 private:
  std::int64_t rows_in(std::int64_t panel) const {
    return std::min(kLanes, count_ - panel * kLanes);
  }

  // First computes the block's gradient H (w - q) over all columns. Then, step by step, adds the
  // contribution of the moves that earlier steps have made in this block.
  std::int64_t sweep_block(std::int64_t block) {
    const std::int64_t end = std::min(columns_, block + kBlockDepth);
    for (std::int64_t panel = 0; panel < panels_; ++panel)
      std::fill_n(gradients_.at(panel, 0), kBlockDepth * kLanes, 0.0f);
    add_lane_product(hessian_.values, LaneProduct{.depth = {0, columns_},
                                                  .columns = {block, end},
                                                  .b = errors_,
                                                  .c = gradients_,
                                                  .panels = panels_});
    std::int64_t moves = 0;
    for (std::int64_t start = block; start < end; start += kStepColumns) {
      const std::int64_t stop = std::min(end, start + kStepColumns);
      add_lane_product(hessian_.values, LaneProduct{.depth = {block, start},
                                                    .columns = {start, stop},
                                                    .b = changes_,
                                                    .b_first = block,
                                                    .c = gradients_,
                                                    .c_first = start - block,
                                                    .panels = panels_});
      for (std::int64_t panel = 0; panel < panels_; ++panel) {
        for (std::int64_t i = start; i < stop; ++i) moves += move_column(panel, i, start, block);
      }
    }
    return moves;
  }

  std::int64_t move_column(std::int64_t panel, std::int64_t column, std::int64_t start,
                           std::int64_t block) {
    const LaneRanges& ranges = ranges_[at(panel)];
    const std::size_t range = at(ranges.index(column));
    const float* factor = hessian_.values.slice(start, start) + (column - start);
    return tile_kernels().move({.gradients = gradients_.at(panel, column - block),
                                .factor = factor,
                                .before = column - start,
                                .scales = &ranges.scales[range],
                                .divisors = &ranges.divisors[range],
                                .curvature = factor[(column - start) * kTileRows],
                                .least_move = kLeastMove,
                                .low = static_cast<float>(limits_.low),
                                .high = static_cast<float>(limits_.high),
                                .table = limits_.table,
                                .codes = &codes_[at((panel * columns_ + column) * kLanes)],
                                .errors = errors_.at(panel, column),
                                .changes = changes_.at(panel, column - block)});
  }

  const Hessian& hessian_;
  CodeLimits limits_;
  std::span<std::int16_t> stored_;
  std::int64_t columns_, first_, count_, panels_;
  LanePanels<float> errors_;         // w - q of all columns
  LanePanels<float> gradients_;      // gradients of the current block
  LanePanels<float> changes_;        // changes of errors_ in the current block
  std::vector<LaneRanges> ranges_;   // [panels]
  std::vector<std::int16_t> codes_;  // [panels][K][lanes]
};

}  // namespace

std::int64_t descend(const MethodInput& input, const Ranges& ranges, const Hessian& hessian,
                     int passes, std::span<std::int16_t> codes, ThreadPool& pool) {
  std::atomic<std::int64_t> moves = 0;
  pool.run((input.rows + kTaskRows - 1) / kTaskRows, [&](std::int64_t task, int) {
    DescentRows rows(input, ranges, hessian, codes, task * kTaskRows);
    std::int64_t moved = 0;
    for (int pass = 0; pass < passes; ++pass) {
      const std::int64_t found = rows.sweep();
      moved += found;
      if (found == 0) break;
    }
    rows.store();
    moves += moved;
  });
  return moves;
}

namespace {

constexpr std::int64_t kSystemValues = std::int64_t{1} << 22;  // limit for all rows of a task
constexpr double kRidge = 1e-6;
constexpr double kLeastGain = 1e-5;  // relative; smaller gains are errors of f32 sums

// One least-squares system A x = b per row, for the changes x of its scales; b_g = c_g H (w - q).
struct Systems {
  std::int64_t groups = 0;
  std::vector<double> matrix;  // [rows][G][G], both triangles
  std::vector<double> right;   // [rows][G]
};

class Refit {
 public:
  Refit(const MethodInput& input, std::span<const std::int16_t> codes, const Hessian& hessian,
        Ranges& ranges)
      : input_(input), codes_(codes), hessian_(hessian), ranges_(ranges) {}

  std::int64_t task_rows() const {
    return std::clamp<std::int64_t>(kSystemValues / (ranges_.per_row * ranges_.per_row), 8, kLanes);
  }

  // Returns the number of rows that got new scales.
  std::int64_t run(std::int64_t first, std::int64_t count) {
    Systems systems = build(first, count);
    std::int64_t taken = 0;
    for (std::int64_t row = 0; row < count; ++row) taken += take(systems, first + row, row) ? 1 : 0;
    return taken;
  }

 private:
  // Codes minus their zero points, [K] columns with rows in lanes.
  LanePanels<float> levels(std::int64_t first, std::int64_t count) const {
    const std::int64_t columns = input_.columns;
    std::vector<float> rows(at(count * columns));
    for (std::int64_t row = 0; row < count; ++row) {
      for (std::int64_t k = 0; k < columns; ++k) {
        const std::size_t range = ranges_.index(first + row, k);
        rows[at(row * columns + k)] =
            static_cast<float>(codes_[at((first + row) * columns + k)] - ranges_.zero(range));
      }
    }
    LanePanels<float> lanes(1, columns);
    rows_to_lanes(rows.data(), columns, count, columns, lanes.at(0, 0), kLanes);
    return lanes;
  }

  Systems build(std::int64_t first, std::int64_t count) const {
    const std::int64_t columns = input_.columns, groups = ranges_.per_row;
    Systems systems{groups, std::vector<double>(at(count * groups * groups)),
                    std::vector<double>(at(count * groups))};
    const LanePanels<float> level = levels(first, count);
    const LanePanels<float> errors = code_errors(input_, ranges_, codes_, first, count);
    LanePanels<float> product(1, (columns + kTileRows - 1) / kTileRows * kTileRows);
    const auto group = [&](std::int64_t g) {
      return IndexRange{g * ranges_.group, std::min(columns, (g + 1) * ranges_.group)};
    };
    for (std::int64_t g = 0; g < groups; ++g) {
      std::fill_n(product.at(0, 0), columns * kLanes, 0.0f);
      add_lane_product(hessian_.values, LaneProduct{.depth = group(g),
                                                    .columns = {0, columns},
                                                    .b = level,
                                                    .b_first = 0,
                                                    .c = product,
                                                    .panels = 1});
      const auto dots = [&](const LanePanels<float>& with, IndexRange over) {
        std::array<double, at(kLanes)> sums = {};
        tile_kernels().add_dots(product.at(0, over.first), with.at(0, over.first),
                                over.last - over.first, sums.data());
        return sums;
      };
      const auto right = dots(errors, {0, columns});
      for (std::int64_t row = 0; row < count; ++row)
        systems.right[at(row * groups + g)] = right[at(row)];
      for (std::int64_t h = g; h < groups; ++h) {
        const auto values = dots(level, group(h));
        for (std::int64_t row = 0; row < count; ++row) {
          double* matrix = systems.matrix.data() + row * groups * groups;
          matrix[g * groups + h] = matrix[h * groups + g] = values[at(row)];
        }
      }
    }
    return systems;
  }

  // Changes of the scales [G] after the new scales were rounded to storable values.
  std::vector<double> storable_changes(std::int64_t row, std::span<const double> wanted) const {
    std::vector<double> changes(wanted.size());
    for (std::size_t g = 0; g < wanted.size(); ++g) {
      const float old = ranges_.scales[at(row * ranges_.per_row) + g];
      const float found = stored_scale(static_cast<float>(static_cast<double>(old) + wanted[g]),
                                       ranges_.scale_mul, input_.scheme);
      if (found == 0 || std::signbit(found) != std::signbit(old)) continue;
      changes[g] = static_cast<double>(found) - static_cast<double>(old);
    }
    return changes;
  }

  bool take(const Systems& systems, std::int64_t row, std::int64_t local) {
    const std::int64_t groups = systems.groups;
    const double* matrix = systems.matrix.data() + local * groups * groups;
    std::vector<double> solved(matrix, matrix + groups * groups);
    std::vector<double> wanted(systems.right.begin() + local * groups,
                               systems.right.begin() + (local + 1) * groups);
    for (std::int64_t g = 0; g < groups; ++g) {
      double& diagonal = solved[at(g * groups + g)];
      diagonal = diagonal > 0 ? diagonal * (1 + kRidge) : 1.0;  // a group of zeros keeps its scale
    }
    if (!solve_positive(solved, wanted)) return false;
    const std::vector<double> changes = storable_changes(row, wanted);
    if (!lowers_loss(matrix, systems.right.data() + local * groups, changes)) return false;
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::size_t range = at(row * groups + g);
      if (changes[at(g)] == 0) continue;
      ranges_.scales[range] =
          static_cast<float>(static_cast<double>(ranges_.scales[range]) + changes[at(g)]);
      ranges_.divisors[range] = ranges_.scales[range];
    }
    return true;
  }

  // Whether the loss decreases; its change is x A x^T - 2 r x.
  static bool lowers_loss(const double* matrix, const double* right,
                          const std::vector<double>& changes) {
    const std::int64_t groups = std::ssize(changes);
    double square = 0, linear = 0;
    for (std::int64_t g = 0; g < groups; ++g) {
      double sum = 0;
      for (std::int64_t h = 0; h < groups; ++h) sum += matrix[g * groups + h] * changes[at(h)];
      square += changes[at(g)] * sum;
      linear += 2 * right[g] * changes[at(g)];
    }
    return square - linear < -kLeastGain * (std::fabs(square) + std::fabs(linear));
  }

  const MethodInput& input_;
  std::span<const std::int16_t> codes_;
  const Hessian& hessian_;
  Ranges& ranges_;
};

}  // namespace

float stored_scale(float scale, float scale_mul, const QuantScheme& scheme) {
  if (scheme.scaling != Scaling::group) return std::isfinite(scale) ? scale : 0.0f;
  const float ratio = scale / scale_mul;
  if (!(std::fabs(ratio) <= 65504.0f)) return 0.0f;
  return f16_to_f32(f32_to_f16(ratio)) * scale_mul;
}

std::int64_t refit_scales(const MethodInput& input, std::span<const std::int16_t> codes,
                          const Hessian& hessian, Ranges& ranges, ThreadPool& pool) {
  if (input.scheme.scaling == Scaling::tensor) return 0;
  Refit refit(input, codes, hessian, ranges);
  const std::int64_t task_rows = refit.task_rows();
  std::atomic<std::int64_t> taken = 0;
  pool.run((input.rows + task_rows - 1) / task_rows, [&](std::int64_t task, int) {
    const std::int64_t first = task * task_rows;
    taken += refit.run(first, std::min(task_rows, input.rows - first));
  });
  return taken;
}

}  // namespace leq
