#include "eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/random.h"

namespace leq {
namespace {

constexpr int kMostTerms = 400;  // limit for the continued fraction
constexpr double kTinyDenominator = 1e-300;
constexpr int kHalvings = 200;  // more than a double has bits

double away_from_zero(double value) {
  return std::abs(value) < kTinyDenominator ? kTinyDenominator : value;
}

// The continued fraction of I_x(a, b) (Abramowitz and Stegun 26.5.8), by Lentz's method.
double beta_fraction(double a, double b, double x) {
  double c = 1;
  double d = 1 / away_from_zero(1 - (a + b) * x / (a + 1));
  double fraction = d;
  for (int m = 1; m <= kMostTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    fraction *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    fraction *= d * c;
    if (std::abs(d * c - 1) < 1e-15) break;
  }
  return fraction;
}

// Finds the argument in (low, high) at which a rising function reaches `value`.
template <class Rising>
double bisect(double low, double high, double value, const Rising& rising) {
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (rising(middle) < value ? low : high) = middle;
  }
  return (low + high) / 2;
}

double mean_of_values(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  // The fraction converges fast only on one side of the mean; the other side uses the complement.
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double student_t_two_sided(double t, double freedom) {
  ensure(freedom > 0, "student t: ", freedom, " degrees of freedom");
  if (!std::isfinite(t)) return 0;
  return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t));
}

double student_t_critical(double p, double freedom) {
  ensure(p > 0 && p < 1, "student t: probability ", p);
  double high = 1;
  while (student_t_two_sided(high, freedom) > p) high *= 2;
  return bisect(0, high, -p, [&](double t) { return -student_t_two_sided(t, freedom); });
}

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

PairedTest paired_t_test(std::span<const double> first, std::span<const double> second) {
  require(first.size() == second.size(), "paired test: ", first.size(), " values beside ",
          second.size());
  require(first.size() >= 2, "paired test: expected 2 pairs or more, found ", first.size());
  std::vector<double> differences;
  for (std::size_t i = 0; i < first.size(); ++i) differences.push_back(first[i] - second[i]);
  const auto n = static_cast<double>(differences.size());
  PairedTest test;
  test.pairs = std::ssize(differences);
  test.mean = mean_of_values(differences);
  double squares = 0;
  for (const double d : differences) squares += (d - test.mean) * (d - test.mean);
  const double deviation = std::sqrt(squares / (n - 1));
  test.error = deviation / std::sqrt(n);
  if (deviation > 0) {
    test.t = test.mean / test.error;
    test.p = student_t_two_sided(test.t, n - 1);
    test.effect = test.mean / deviation;
  } else {
    test.p = test.mean == 0 ? 1 : 0;
  }
  const double half = student_t_critical(0.05, n - 1) * test.error;
  test.confidence = {test.mean - half, test.mean + half};
  return test;
}

double bonferroni(double p, std::int64_t comparisons) {
  return std::min(1.0, p * static_cast<double>(comparisons));
}

Interval bootstrap_mean(std::span<const double> values, std::uint64_t seed, std::int64_t resamples,
                        double confidence) {
  ensure(!values.empty() && resamples > 0, "bootstrap: nothing to draw from");
  Random random(seed);
  std::vector<double> means(static_cast<std::size_t>(resamples));
  for (double& mean : means) {
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum += values[random.below(static_cast<std::uint32_t>(values.size()))];
    }
    mean = sum / static_cast<double>(values.size());
  }
  std::ranges::sort(means);
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(means.size() - 1);
    const auto low = static_cast<std::size_t>(place);
    const std::size_t high = std::min(low + 1, means.size() - 1);
    return means[low] + (place - std::floor(place)) * (means[high] - means[low]);
  };
  return {at((1 - confidence) / 2), at((1 + confidence) / 2)};
}

}  // namespace leq
