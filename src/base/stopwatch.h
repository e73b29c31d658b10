// Measures elapsed time.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace leq {

class Stopwatch {
 public:
  // Seconds since construction or the last restart.
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  void restart() { start_ = std::chrono::steady_clock::now(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The median of several measurements; the mean of the middle two if their number is even. `values`
// must not be empty.
inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace leq
