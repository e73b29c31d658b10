// A histogram of durations with upper bounds, accumulated since the start, as Prometheus
// expects.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace leq {

struct TimeHistogram {
  static constexpr std::array kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,   0.25, 0.5,
                                         1.0,   2.5,    5.0,   10.0, 25.0,  50.0, 100.0, 250.0};
  // The last count is for values above all bounds.
  std::array<std::int64_t, kBounds.size() + 1> counts = {};
  double sum = 0;

  // Counts a duration of `seconds` `times` times; upper bounds are inclusive.
  void add(double seconds, std::int64_t times = 1) {
    const auto place = std::ranges::lower_bound(kBounds, seconds) - kBounds.begin();
    counts[static_cast<std::size_t>(place)] += times;
    sum += seconds * static_cast<double>(times);
  }
};

}  // namespace leq
