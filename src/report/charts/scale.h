// Axes of charts: convert values to positions, and choose round numbers as labels.
#pragma once

#include <string>
#include <vector>

namespace leq {

class ChartScale {
 public:
  // Covers [low, high], widened if it is empty; `logarithmic` requires low > 0.
  ChartScale(double low, double high, bool logarithmic);
  // The position of a value on an axis that extends from position `from` to `to`.
  double place(double value, double from, double to) const;
  // About `wanted` round numbers in the range.
  std::vector<double> ticks(int wanted) const;
  bool logarithmic() const { return logarithmic_; }
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  double low_, high_;
  bool logarithmic_;
};

// A number in a short form for charts: "0.05", "1.2k", "3e-05".
std::string short_number(double value);

}  // namespace leq
