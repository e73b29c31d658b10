// log2 and 2^x in f64 with the same bits on every machine: only IEEE operations, fma and exponent
// bits, in a fixed order. For token sampling on the host; the error is within 4e-16, relative, or
// absolute where log2 is near 0.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace leq {

// log2(x) of a finite x > 0 that is not subnormal. Powers of two are exact.
inline double fixed_log2(double x) {
  constexpr std::uint64_t kFraction = (std::uint64_t{1} << 52) - 1;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  auto exponent = static_cast<std::int64_t>(bits >> 52) - 1023;
  auto m = std::bit_cast<double>((bits & kFraction) | std::uint64_t{1023} << 52);  // [1, 2)
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  // ln m = 2 (s + s^3/3 + s^5/5 + ...), |s| < 0.172: 12 terms leave less than 2^-60.
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 1.0 / 23;
  for (int k = 21; k >= 1; k -= 2) sum = std::fma(sum, square, 1.0 / k);
  constexpr double kTwoLog2E = 0x1.71547652b82fep+1;  // 2 / ln 2
  return static_cast<double>(exponent) + kTwoLog2E * (s * sum);
}

// 2^x; 0 below -1022, +infinity above 1023.
inline double fixed_exp2(double x) {
  if (x < -1022) return 0;
  if (x > 1023) return std::numeric_limits<double>::infinity();
  const double n = std::floor(x + 0.5);
  constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  const double r = (x - n) * kLn2;  // |r| <= 0.347: 15 terms of e^r leave less than 2^-60
  double p = 1;
  for (int k = 14; k >= 1; --k) p = std::fma(p, r / k, 1.0);
  const auto exponent = static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023);
  return p * std::bit_cast<double>(exponent << 52);
}

}  // namespace leq
