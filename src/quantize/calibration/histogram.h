// Histogram of |x| by the upper bits of the f32 value, with 32 bins for each power of two from
// 2^-32 to 2^32. Smaller and larger magnitudes are counted in the first or last bin.
#pragma once

#include <array>
#include <cstdint>

namespace leq {

inline constexpr int kHistogramBins = 2048;

struct Histogram {
  std::array<std::uint64_t, kHistogramBins> counts = {};

  void add(float value, std::uint64_t times = 1);
  void add(const Histogram& more);
};

// The smallest |x| that is counted in a bin.
float histogram_edge(int bin);
// The smallest bin edge with at least `share` of all values below it.
float histogram_quantile(const Histogram& histogram, double share);

// Sum of the squared errors of all values if they are rounded to multiples of `peak` / 127 and
// clipped at `peak`. The values of a bin count as uniformly distributed; `absmax` is the largest.
double rounding_error(const Histogram& histogram, float absmax, float peak);

}  // namespace leq
