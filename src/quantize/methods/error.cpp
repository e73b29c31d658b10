#include "quantize/methods/error.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "quantize/linear_algebra/dense.h"
#include "quantize/methods/fit.h"
#include "tensor/nf4.h"
#include "tensor/weight_layout.h"

namespace leq {
namespace {

constexpr std::int64_t kBinaryGroup = 128;  // columns of b1 that share their eight numbers
constexpr std::int64_t kBinaryNumbers = 8;

void require_sizes(const ChosenCodes& chosen, std::int64_t rows, std::int64_t columns,
                   std::int64_t scales, std::int64_t zeros) {
  ensure(std::ssize(chosen.codes) == rows * columns, "dequantize: expected ", rows, " x ", columns,
         " codes, found ", chosen.codes.size());
  ensure(std::ssize(chosen.scales) == scales, "dequantize: expected ", scales, " scales, found ",
         chosen.scales.size());
  ensure(std::ssize(chosen.zeros) == zeros, "dequantize: expected ", zeros, " zeros, found ",
         chosen.zeros.size());
}

std::vector<float> dequantize_binary(const ChosenCodes& chosen, std::int64_t rows,
                                     std::int64_t columns) {
  const std::int64_t groups = (columns + kBinaryGroup - 1) / kBinaryGroup;
  require_sizes(chosen, rows, columns, rows * groups * kBinaryNumbers, columns);
  std::vector<float> values(chosen.codes.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = 0; k < columns; ++k) {
      const auto i = static_cast<std::size_t>(row * columns + k);
      const float* numbers =
          chosen.scales.data() + (row * groups + k / kBinaryGroup) * kBinaryNumbers;
      const bool first = (chosen.codes[i] & 1) != 0, second = (chosen.codes[i] & 2) != 0;
      const auto level = [numbers](int part, bool plus) {
        return plus ? numbers[2 * part] + numbers[2 * part + 1]
                    : numbers[2 * part] - numbers[2 * part + 1];
      };
      const bool salient = chosen.zeros[static_cast<std::size_t>(k)] != 0;
      values[i] = salient ? level(0, first) + level(1, second) : level(second ? 3 : 2, first);
    }
  }
  return values;
}

std::int64_t ceil_divided(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

std::vector<float> dequantize_levels(const ChosenCodes& chosen, std::int64_t rows,
                                     std::int64_t columns) {
  const std::int64_t blocks = ceil_divided(columns, kNf4Block);
  const std::int64_t parts = ceil_divided(columns, kNf4SizeColumns);
  require_sizes(chosen, rows, columns, ceil_divided(rows, kPanelRows) * parts * 2, rows * blocks);
  std::vector<float> values(chosen.codes.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = 0; k < columns; ++k) {
      const auto i = static_cast<std::size_t>(row * columns + k);
      const float* first_and_step =
          chosen.scales.data() + (row / kPanelRows * parts + k / kNf4SizeColumns) * 2;
      const auto u = chosen.zeros[static_cast<std::size_t>(row * blocks + k / kNf4Block)];
      const float size = std::fma(static_cast<float>(u), first_and_step[1], first_and_step[0]);
      values[i] = size * kNf4Levels[static_cast<std::size_t>(chosen.codes[i])];
    }
  }
  return values;
}

double square(double value) { return value * value; }

// Sums `term(row)` of all rows, in the order of rows for any number of threads.
template <class Term>
double sum_over_rows(ThreadPool* pool, std::int64_t rows, const Term& term) {
  std::vector<double> terms(static_cast<std::size_t>(rows));
  for_rows(pool, rows, [&](std::int64_t row) { terms[static_cast<std::size_t>(row)] = term(row); });
  return std::accumulate(terms.begin(), terms.end(), 0.0);
}

double ratio(double error, double energy) { return energy > 0 ? error / energy : 0; }

double weighted_error(const WeightPair& pair, std::span<const double> weights) {
  const auto sum = [&](bool difference) {
    return sum_over_rows(pair.pool, pair.rows, [&](std::int64_t row) {
      double total = 0;
      for (std::int64_t k = 0; k < pair.columns; ++k) {
        const auto i = static_cast<std::size_t>(row * pair.columns + k);
        const auto wanted = static_cast<double>(pair.wanted[i]);
        const double value = difference ? wanted - static_cast<double>(pair.found[i]) : wanted;
        total += (weights.empty() ? 1.0 : weights[static_cast<std::size_t>(k)]) * square(value);
      }
      return total;
    });
  };
  return ratio(sum(true), sum(false));
}

constexpr std::int64_t kRowsAtOnce = 128;  // rows that share one reading of H

// d H d^T of a few rows: the product d H, then a dot product with d.
void block_errors(std::span<const double> rows, std::span<const double> hessian,
                  std::int64_t columns, std::span<double> out) {
  std::vector<double> products(rows.size());
  const std::int64_t count = std::ssize(out);
  add_product({rows.data(), count, columns, columns}, {hessian.data(), columns, columns, columns},
              Block<double>{products.data(), count, columns, columns});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out[i / static_cast<std::size_t>(columns)] += rows[i] * products[i];
  }
}

}  // namespace

std::vector<float> dequantize(const ChosenCodes& chosen, std::int64_t rows, std::int64_t columns,
                              const QuantScheme& scheme) {
  if (scheme.kind == CodeKind::b1) return dequantize_binary(chosen, rows, columns);
  if (scheme.kind == CodeKind::nf4) return dequantize_levels(chosen, rows, columns);
  const std::int64_t group = scheme.scaling == Scaling::group ? scheme.group : columns;
  const std::int64_t per_row = (columns + group - 1) / group;
  const bool has_zeros = scheme.kind == CodeKind::uint_;
  require_sizes(chosen, rows, columns, rows * per_row, has_zeros ? rows * per_row : 0);
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
  const auto errors = output_errors(difference, statistics, pair.pool);
  const auto energies = output_errors(pair.wanted, statistics, pair.pool);
  return ratio(std::accumulate(errors.begin(), errors.end(), 0.0),
               std::accumulate(energies.begin(), energies.end(), 0.0));
}

std::vector<double> output_errors(std::span<const float> rows, const InputStatistics& statistics,
                                  ThreadPool* pool) {
  const std::int64_t columns = statistics.columns;
  ensure(columns > 0 && std::ssize(rows) % columns == 0, "error: expected rows of ", columns,
         " columns, found ", rows.size(), " values");
  const std::int64_t count = std::ssize(rows) / columns;
  std::vector<double> errors(static_cast<std::size_t>(count));
  for_rows(pool, (count + kRowsAtOnce - 1) / kRowsAtOnce, [&](std::int64_t block) {
    const std::int64_t first = block * kRowsAtOnce;
    const auto size = static_cast<std::size_t>(std::min(kRowsAtOnce, count - first));
    const auto part = rows.subspan(static_cast<std::size_t>(first * columns),
                                   size * static_cast<std::size_t>(columns));
    const auto out = std::span(errors).subspan(static_cast<std::size_t>(first), size);
    const std::vector<double> wide(part.begin(), part.end());
    if (!statistics.hessian.empty()) return block_errors(wide, statistics.hessian, columns, out);
    for (std::size_t i = 0; i < wide.size(); ++i) {
      const auto k = static_cast<std::int64_t>(i) % columns;
      out[i / static_cast<std::size_t>(columns)] +=
          statistics.square_sum[static_cast<std::size_t>(k)] * square(wide[i]);
    }
  });
  return errors;
}

}  // namespace leq
