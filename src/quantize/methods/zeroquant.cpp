// The part of ZeroQuant that learns: bias correction and method zeroquant+.
#include "quantize/methods/zeroquant.h"

#include <utility>

#include "base/error.h"
#include "quantize/methods/gptq.h"
#include "quantize/methods/method.h"
#include "quantize/methods/second_order.h"

namespace leq {
namespace {

// Returns sum_k weight(n K + k) mean(x_k) for each row n: [N].
template <class Weight>
std::vector<float> times_mean(std::int64_t rows, std::int64_t columns,
                              const InputStatistics& statistics, ThreadPool* pool,
                              const Weight& weight) {
  require(std::ssize(statistics.sum) == columns && statistics.tokens > 0,
          "the statistics have the mean inputs of ", statistics.sum.size(), " columns and ",
          statistics.tokens, " tokens, the weights have ", columns,
          " columns; calibrate this model");
  std::vector<float> result(static_cast<std::size_t>(rows));
  for_rows(pool, rows, [&](std::int64_t row) {
    double total = 0;
    for (std::int64_t k = 0; k < columns; ++k) {
      total += weight(static_cast<std::size_t>(row * columns + k)) *
               statistics.sum[static_cast<std::size_t>(k)];
    }
    result[static_cast<std::size_t>(row)] =
        static_cast<float>(total / static_cast<double>(statistics.tokens));
  });
  return result;
}

}  // namespace

std::vector<float> bias_correction(const WeightPair& pair, const InputStatistics& statistics) {
  return times_mean(pair.rows, pair.columns, statistics, pair.pool, [&](std::size_t i) {
    return static_cast<double>(pair.wanted[i]) - static_cast<double>(pair.found[i]);
  });
}

std::vector<float> mean_outputs(std::span<const float> weight, const InputStatistics& statistics,
                                ThreadPool& pool) {
  return times_mean(std::ssize(weight) / statistics.columns, statistics.columns, statistics, &pool,
                    [&](std::size_t i) { return static_cast<double>(weight[i]); });
}

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

}  // namespace leq
