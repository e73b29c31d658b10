#include "report/charts/scale.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/text.h"

namespace leq {
namespace {

std::vector<double> linear_ticks(double low, double high, int wanted) {
  const double raw = (high - low) / std::max(1, wanted);
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = power * 10;
  for (const double round : {1.0, 2.0, 2.5, 5.0}) {
    if (raw <= round * power * 1.0001) {
      step = round * power;
      break;
    }
  }
  std::vector<double> ticks;
  const auto first = static_cast<std::int64_t>(std::ceil(low / step - 1e-9));
  for (std::int64_t i = first; static_cast<double>(i) * step <= high + step * 1e-9; ++i) {
    ticks.push_back(static_cast<double>(i) * step);
  }
  return ticks;
}

std::vector<double> log_ticks(double low, double high, int wanted) {
  const double decades = std::log10(high / low);
  const std::vector<double> rounds = decades > wanted         ? std::vector<double>{1}
                                     : decades > wanted / 2.5 ? std::vector<double>{1, 3}
                                                              : std::vector<double>{1, 2, 5};
  const int every = std::max(1, static_cast<int>(std::lround(decades / std::max(1, wanted))));
  std::vector<double> ticks;
  const int first = static_cast<int>(std::floor(std::log10(low)));
  const int last = static_cast<int>(std::ceil(std::log10(high)));
  for (int exponent = first; exponent <= last; exponent += every) {
    for (const double round : rounds) {
      const double tick = round * std::pow(10.0, exponent);
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push_back(tick);
    }
  }
  return ticks.size() >= 2 ? ticks : linear_ticks(low, high, wanted);
}

}  // namespace

ChartScale::ChartScale(double low, double high, bool logarithmic)
    : low_(low), high_(high), logarithmic_(logarithmic && low > 0) {
  if (!(high_ > low_)) {
    const double half = low_ != 0 ? std::abs(low_) / 2 : 1;
    low_ = logarithmic_ ? low_ / 2 : low_ - half;
    high_ = high_ + half;
  }
}

double ChartScale::place(double value, double from, double to) const {
  double share = (value - low_) / (high_ - low_);
  if (logarithmic_) {
    share = std::log(std::max(value, low_ * 1e-3) / low_) / std::log(high_ / low_);
  }
  return from + share * (to - from);
}

std::vector<double> ChartScale::ticks(int wanted) const {
  return logarithmic_ ? log_ticks(low_, high_, wanted) : linear_ticks(low_, high_, wanted);
}

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size >= 1e6 && size < 1e9) return fixed(value / 1e6, size < 1e7 ? 1 : 0) + "M";
  if (size >= 1e4 && size < 1e6) return fixed(value / 1e3, 0) + "k";
  if (size >= 1e3 && size < 1e4) return fixed(value, 0);
  std::array<char, 32> digits = {};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                 std::chars_format::general, 3)
                       .ptr;
  return {digits.data(), end};
}

}  // namespace leq
