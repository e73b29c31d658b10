// Confidence intervals of proportions.
#pragma once

#include <cstdint>

namespace leq {

struct Interval {
  double low = 0;
  double high = 0;
};

// The inverse of the normal distribution function, 0 < p < 1; by bisection of erfc.
double normal_quantile(double p);

// Wilson's interval of a proportion (Wilson 1927): within [0, 1], never empty. `trials` > 0.
Interval wilson_interval(std::int64_t successes, std::int64_t trials, double confidence = 0.95);

}  // namespace leq
