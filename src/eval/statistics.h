// Statistics of small samples: tests of paired differences, confidence intervals of proportions and
// means, and the distributions that these need.
#pragma once

#include <cstdint>
#include <span>

namespace leq {

struct Interval {
  double low = 0;
  double high = 0;
};

// I_x(a, b), the regularized incomplete beta function, by Lentz's continued fraction; a, b > 0, x
// in [0, 1]. Relative error below 1e-10.
double incomplete_beta(double a, double b, double x);

// P(|T| >= |t|) of Student's t distribution with `freedom` > 0 degrees of freedom.
double student_t_two_sided(double t, double freedom);
// The value t for which |T| > t has probability `p`, 0 < p < 1; by bisection.
double student_t_critical(double p, double freedom);
// The inverse of the normal distribution function, 0 < p < 1; by bisection of erfc.
double normal_quantile(double p);

// Wilson's interval of a proportion (Wilson 1927): within [0, 1], never empty. `trials` > 0.
Interval wilson_interval(std::int64_t successes, std::int64_t trials, double confidence = 0.95);

// Student's t test of the paired differences first - second.
struct PairedTest {
  std::int64_t pairs = 0;
  double mean = 0;      // mean of the differences
  double error = 0;     // standard error of the mean
  double t = 0;         // mean / error; 0 if all differences are equal
  double p = 1;         // two-sided; 0 if all differences are equal and not 0
  double effect = 0;    // Cohen's d of pairs: mean / standard deviation of the differences
  Interval confidence;  // 95 % interval of the mean
};
// Throws Error if there are fewer than two pairs or the lists differ in length.
PairedTest paired_t_test(std::span<const double> first, std::span<const double> second);

// Bonferroni's correction of a p value for `comparisons` tests: min(1, p comparisons).
double bonferroni(double p, std::int64_t comparisons);

// Percentile interval of the mean of `values` from `resamples` bootstrap samples. The generator is
// counter-based, so the result is the same on every machine. `values` must not be empty.
Interval bootstrap_mean(std::span<const double> values, std::uint64_t seed,
                        std::int64_t resamples = 2000, double confidence = 0.95);

}  // namespace leq
