// The middle of several measurements.
#pragma once

#include <algorithm>
#include <vector>

namespace leq {

// Between the two in the middle where they are even in number. There must be one.
inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace leq
