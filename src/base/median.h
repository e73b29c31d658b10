// The median of several measurements.
#pragma once

#include <algorithm>
#include <vector>

namespace leq {

// The mean of the middle two if the count is even. `values` must not be empty.
inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace leq
