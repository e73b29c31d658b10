#include "quantize/methods/error.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "comm/division.h"
#include "quantize/methods/code_errors.h"
#include "quantize/methods/fit.h"
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

OutputWeights::OutputWeights(const InputStatistics& statistics, ThreadPool* pool)
    : statistics_(statistics), pool_(pool) {
  if (statistics.hessian.empty()) return;
  MethodInput input;
  input.name = "the error of the outputs";
  input.columns = statistics.columns;
  input.statistics = &statistics;
  ThreadPool alone(1);
  hessian_ = loss_hessian(input, pool == nullptr ? alone : *pool);
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

}  // namespace leq
