// The engine's own exp, with silu and gelu based on it. Results have the same bits on all machines
// and in all kernels: only IEEE operations, fma and exponent bits are used, in a fixed order.
//
// The order of operations of leq_exp(x), all in f32, round to nearest even (SIMD kernels repeat
// it):
// 1. t = x * kLog2E
// 2. n = t rounded to an integer, ties to even
// 3. r = fma(-n, kLn2High, x); r = fma(-n, kLn2Low, r)
// 4. p = kExp6; p = fma(p, r, kExp5); p = fma(p, r, kExp4); p = fma(p, r, kExp3);
// p = fma(p, r, kExp2); p = fma(p, r, 1); p = fma(p, r, 1)
// 5. y = p * 2^n, where 2^n has the bits (int(n) + 127) << 23
// 6. x < -87 gives +0, x > 88 gives +inf, NaN gives a NaN; these rules override steps 1 to 5.
// Between the limits n is in [-126, 127] and y is never subnormal. The sign of n = 0 does not
// matter.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace leq {

inline constexpr float kExpLowest = -87.0f;
inline constexpr float kExpHighest = 88.0f;
inline constexpr float kLog2E = 0x1.715476p+0f;
// ln 2 in two parts. Subtracting n * kLn2High is exact, because |r| < 0.36 is a multiple of 2^-24
// or of the last bit of x.
inline constexpr float kLn2High = 0x1.62e43p-1f;
inline constexpr float kLn2Low = -0x1.05c61p-29f;
// e^r = 1 + r + kExp2 r^2 + ... + kExp6 r^6 for |r| <= 0.3466, with minimal relative error
// (3.2e-9): found by Remez exchange, rounding the coefficients to f32 one after another.
inline constexpr float kExp2 = 0x1.fffffcp-2f;
inline constexpr float kExp3 = 0x1.55548cp-3f;
inline constexpr float kExp4 = 0x1.555858p-5f;
inline constexpr float kExp5 = 0x1.123dep-7f;
inline constexpr float kExp6 = 0x1.6ac74ap-10f;

inline constexpr float kGeluCubic = 0.044715f;
inline constexpr float kGeluScale = 0.79788456f;  // sqrt(2 / pi)

// The functions are static instead of inline: each file keeps its own copy, so that the linker does
// not use a copy built for one instruction set in a file built for another.

// e^x by the steps above, with a relative error below one unit in the last place (2^-23).
[[maybe_unused]] static float leq_exp(float x) noexcept {
  if (x < kExpLowest) return 0.0f;
  if (x > kExpHighest) return std::numeric_limits<float>::infinity();
  if (x != x) return x + x;
  constexpr float kToInteger = 0x1.8p23f;  // adding it rounds to an integer, ties to even
  const float n = (x * kLog2E + kToInteger) - kToInteger;
  float r = std::fma(-n, kLn2High, x);
  r = std::fma(-n, kLn2Low, r);
  float p = kExp6;
  p = std::fma(p, r, kExp5);
  p = std::fma(p, r, kExp4);
  p = std::fma(p, r, kExp3);
  p = std::fma(p, r, kExp2);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  const auto exponent = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127);
  return p * std::bit_cast<float>(exponent << 23);
}

// silu(x) = x / (1 + exp(-x)), computed with leq_exp, one addition and one division.
[[maybe_unused]] static float silu(float x) noexcept { return x / (1.0f + leq_exp(-x)); }

// GPT-2's gelu (the tanh form, written with exp): u = kGeluScale * fma(kGeluCubic * (x * x), x, x),
// x / (1 + exp(-2 u)). Each product is rounded before the next operation.
[[maybe_unused]] static float gelu_new(float x) noexcept {
  const float u = kGeluScale * std::fma(kGeluCubic * (x * x), x, x);
  return x / (1.0f + leq_exp(-2.0f * u));
}

// gpt-oss's gated product: g = min(gate, 7), u = up within [-7, 7],
// (g / (1 + exp(-1.702 g))) * (u + 1). NaN is kept.
inline constexpr float kClampedSwigluLimit = 7.0f, kClampedSwigluScale = 1.702f;
[[maybe_unused]] static float clamped_swiglu(float gate, float up) noexcept {
  constexpr float kLimit = kClampedSwigluLimit;
  const float g = gate > kLimit ? kLimit : gate;
  const float above = up < -kLimit ? -kLimit : up;
  const float u = above > kLimit ? kLimit : above;
  return g / (1.0f + leq_exp(-(kClampedSwigluScale * g))) * (u + 1.0f);
}

// cap * tanh(scale * x / cap): u = |x| * scale / cap, t = leq_exp(-2 u), cap * (1 - t) / (1 + t)
// with the sign of x. Infinity and NaN are returned unchanged.
[[maybe_unused]] static float capped(float x, float scale, float cap) noexcept {
  const float t = leq_exp(-2.0f * (std::fabs(x) * scale / cap));
  return std::isfinite(x) ? std::copysign(cap * (1.0f - t) / (1.0f + t), x) : x;
}

}  // namespace leq
