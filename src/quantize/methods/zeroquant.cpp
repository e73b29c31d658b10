// Method zeroquant: the nearest code with a scale for each group of columns of a row, for inputs
// with a scale for each token.
#include "quantize/methods/zeroquant.h"

#include "base/error.h"
#include "quantize/methods/fit.h"
#include "quantize/methods/method_table.h"

namespace leq {
namespace {

MethodResult choose_zeroquant(const MethodInput& input) {
  return {nearest_codes(input, choose_ranges(input, fit_signed)), ""};
}

}  // namespace

bool supports_zeroquant(const QuantScheme& scheme) {
  return scheme.kind == CodeKind::int_ && scheme.scaling != Scaling::tensor;
}

QuantMethod zeroquant_method() {
  return {"zeroquant", "groups of columns by the largest |w|; with act row (int-g types)",
          Needs::nothing, supports_zeroquant, choose_zeroquant};
}

std::vector<float> bias_correction(const WeightPair& pair, const InputStatistics& statistics) {
  require(std::ssize(statistics.sum) == pair.columns && statistics.tokens > 0,
          "bias correction: expected the mean inputs of ", pair.columns, " columns, found ",
          statistics.sum.size(), " of ", statistics.tokens, " tokens; calibrate first");
  std::vector<float> delta(static_cast<std::size_t>(pair.rows));
  for_rows(pair.pool, pair.rows, [&](std::int64_t row) {
    double total = 0;
    for (std::int64_t k = 0; k < pair.columns; ++k) {
      const auto i = static_cast<std::size_t>(row * pair.columns + k);
      total += (static_cast<double>(pair.wanted[i]) - static_cast<double>(pair.found[i])) *
               statistics.sum[static_cast<std::size_t>(k)];
    }
    delta[static_cast<std::size_t>(row)] =
        static_cast<float>(total / static_cast<double>(statistics.tokens));
  });
  return delta;
}

}  // namespace leq
