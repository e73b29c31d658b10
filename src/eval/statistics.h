// Statistics of small samples: tests of paired differences, intervals of shares and of means, and
// the distributions behind them.
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
// The t that |T| exceeds with probability `p`, 0 < p < 1; by bisection.
double student_t_critical(double p, double freedom);
// The inverse of the normal distribution function, 0 < p < 1; by bisection of erfc.
double normal_quantile(double p);

// Wilson's interval of a share (Wilson 1927): never outside [0, 1], never empty. `trials` > 0.
Interval wilson_interval(std::int64_t successes, std::int64_t trials, double confidence = 0.95);

// Student's test of the differences first - second of pairs.
struct PairedTest {
  std::int64_t pairs = 0;
  double mean = 0;      // of the differences
  double error = 0;     // its standard error
  double t = 0;         // mean / error; 0 where all differences are equal
  double p = 1;         // two-sided; 0 where all differences are equal and not 0
  double effect = 0;    // Cohen's d of pairs: mean / standard deviation of the differences
  Interval confidence;  // 95 %, of the mean
};
// Throws Error where there are fewer than two pairs, or unequal numbers.
PairedTest paired_t_test(std::span<const double> first, std::span<const double> second);

// Bonferroni's correction of a p value among so many comparisons: min(1, p comparisons).
double bonferroni(double p, std::int64_t comparisons);

// Percentile interval of the mean of `values` by `resamples` draws with replacement, from a
// counter-based generator: the same on every machine. `values` must not be empty.
Interval bootstrap_mean(std::span<const double> values, std::uint64_t seed,
                        std::int64_t resamples = 2000, double confidence = 0.95);

}  // namespace leq
