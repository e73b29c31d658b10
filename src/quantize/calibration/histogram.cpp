#include "quantize/calibration/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace leq {
namespace {

constexpr int kBinBits = 5;                              // mantissa bits that select a bin
constexpr std::uint32_t kShift = 23 - kBinBits;          // shift from an f32's bits to its bin
constexpr int kFirstBin = (127 - 32) * (1 << kBinBits);  // bin of 2^-32 if the bin of 0.0 is 0

int bin_of(float value) {
  const auto upper =
      static_cast<int>((std::bit_cast<std::uint32_t>(value) & 0x7fffffffu) >> kShift);
  return std::clamp(upper - kFirstBin, 0, kHistogramBins - 1);
}

// Integral from 0 to x of the squared error of rounding to the nearest n * step, n = 0 ... 127.
double error_below(double x, double step) {
  const double n = std::min(127.0, std::nearbyint(x / step));
  const double rest = x - n * step;
  return n * step * step * step / 12 + rest * rest * rest / 3;
}

}  // namespace

void Histogram::add(float value, std::uint64_t times) {
  counts[static_cast<std::size_t>(bin_of(value))] += times;
}

void Histogram::add(const Histogram& more) {
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += more.counts[i];
}

float histogram_edge(int bin) {
  if (bin == 0) return 0.0f;
  return std::bit_cast<float>(static_cast<std::uint32_t>(bin + kFirstBin) << kShift);
}

float histogram_quantile(const Histogram& histogram, double share) {
  std::uint64_t all = 0;
  for (const std::uint64_t count : histogram.counts) all += count;
  const double wanted = share * static_cast<double>(all);
  std::uint64_t below = 0;
  for (int bin = 0; bin < kHistogramBins; ++bin) {
    if (static_cast<double>(below) >= wanted) return histogram_edge(bin);
    below += histogram.counts[static_cast<std::size_t>(bin)];
  }
  return histogram_edge(kHistogramBins);
}

double rounding_error(const Histogram& histogram, float absmax, float peak) {
  const double step = static_cast<double>(peak) / 127;
  double total = 0;
  for (int bin = 0; bin < kHistogramBins; ++bin) {
    const std::uint64_t count = histogram.counts[static_cast<std::size_t>(bin)];
    if (count == 0) continue;
    const double first = static_cast<double>(histogram_edge(bin));
    const bool last = bin == kHistogramBins - 1 || histogram_edge(bin + 1) > absmax;
    const double end = static_cast<double>(last ? absmax : histogram_edge(bin + 1));
    double mean = first - std::min(127.0, std::nearbyint(first / step)) * step;
    mean *= mean;
    if (end > first) mean = (error_below(end, step) - error_below(first, step)) / (end - first);
    total += static_cast<double>(count) * mean;
  }
  return total;
}

}  // namespace leq
