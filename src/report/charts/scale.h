// Axes of charts: numbers to places, and round numbers to label.
#pragma once

#include <string>
#include <vector>

namespace leq {

class ChartScale {
 public:
  // Covers [low, high], widened to something; `logarithmic` needs low > 0.
  ChartScale(double low, double high, bool logarithmic);
  // Where a value stands: places `from` to `to` are the ends.
  double place(double value, double from, double to) const;
  // About `wanted` round numbers within the range.
  std::vector<double> ticks(int wanted) const;
  bool logarithmic() const { return logarithmic_; }
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  double low_, high_;
  bool logarithmic_;
};

// A number as a chart has room for: "0.05", "1.2k", "3e-05".
std::string short_number(double value);

}  // namespace leq
