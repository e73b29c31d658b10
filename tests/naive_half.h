// f16 and bf16 by their definition in double: a reference that shares no code with
// half.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace leq::test {

// Returns the number with `precision` significant bits nearest to x, ties to even; numbers are
// multiples of at least 2^lowest. There is no overflow.
inline double nearest(double x, int precision, int lowest) {
  if (x == 0) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  const double ulp = std::ldexp(1.0, std::max(exponent - precision, lowest));
  return std::nearbyint(x / ulp) * ulp;
}
inline double nearest_f16(double x) { return nearest(x, 11, -24); }
inline double nearest_bf16(double x) { return nearest(x, 8, -133); }

// The value of a pattern with `mantissa_bits` mantissa bits and 15 - mantissa_bits exponent bits.
inline double value_of_pattern(std::uint16_t pattern, int mantissa_bits) {
  const int exponent_mask = (1 << (15 - mantissa_bits)) - 1;
  const int bias = exponent_mask / 2;
  const int exponent = (pattern & 0x7fff) >> mantissa_bits;
  const int mantissa = pattern & ((1 << mantissa_bits) - 1);
  const double sign = (pattern & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == exponent_mask) return mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

// Returns the f16 pattern of a number that f16 represents exactly, by searching all patterns.
inline std::uint16_t f16_pattern(double x) {
  unsigned low = 0;  // patterns of positive numbers ascend with the number
  for (unsigned bit = 1u << 14; bit > 0; bit >>= 1) {
    if (value_of_pattern(static_cast<std::uint16_t>(low + bit), 10) <= std::fabs(x)) low += bit;
  }
  return static_cast<std::uint16_t>(low | (std::signbit(x) ? 0x8000u : 0u));
}

}  // namespace leq::test
