// How often which magnitude was seen: |x| by the upper bits of its f32, 32 bins to each power of
// two from 2^-32 to 2^32. What lies below or beyond is in the first or last bin.
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

// A bin's smallest |x|.
float histogram_edge(int bin);
// The smallest edge that at least `share` of all values lie below.
float histogram_quantile(const Histogram& histogram, double share);

// Sum of squared errors of all values when rounded to multiples of `peak` / 127 and clipped at
// `peak`, the values of a bin taken as spread evenly over it; `absmax` is the largest value.
double rounding_error(const Histogram& histogram, float absmax, float peak);

}  // namespace leq
