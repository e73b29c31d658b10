#include "eval/statistics.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace leq {
namespace {

constexpr int kHalvings = 200;  // more than a double has bits

// Finds the argument in (low, high) at which a rising function reaches `value`.
template <class Rising>
double bisect(double low, double high, double value, const Rising& rising) {
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (rising(middle) < value ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

double normal_quantile(double p) {
  ensure(p > 0 && p < 1, "normal quantile: probability ", p);
  constexpr double kFarthest = 40;  // in standard deviations; erfc underflows before
  return bisect(-kFarthest, kFarthest, p,
                [](double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); });
}

Interval wilson_interval(std::int64_t successes, std::int64_t trials, double confidence) {
  ensure(trials > 0 && successes >= 0 && successes <= trials, "wilson: ", successes, " of ",
         trials);
  const double z = normal_quantile(0.5 + confidence / 2);
  const auto n = static_cast<double>(trials);
  const double share = static_cast<double>(successes) / n;
  const double centre = (share + z * z / (2 * n)) / (1 + z * z / n);
  const double half =
      z / (1 + z * z / n) * std::sqrt(share * (1 - share) / n + z * z / (4 * n * n));
  return {std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

}  // namespace leq
