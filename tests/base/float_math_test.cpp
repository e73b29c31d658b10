// Compares exp, silu and gelu with the C library in double, over the whole range of f32 in steps.
#include "base/float_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace leq {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// One unit in the last place of 1.0, which is the error bound in the header.
constexpr double kUlp = 0x1p-23;

TEST(FloatMath, ExpIsWithinOneUlpOfTheTruthOverAllFloats) {
  double worst = 0;
  for (std::uint64_t bits = 0; bits <= 0xffffffffull;
       bits += 1021) {  // a prime step, so that all exponents occur
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (!(x >= -87.0f && x <= 88.0f)) continue;
    const double truth = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(leq_exp(x)) / truth - 1));
  }
  EXPECT_LT(worst, kUlp);
  EXPECT_GT(worst, 0.25 * kUlp);  // shows that the comparison works
}

TEST(FloatMath, ExpIsExactAtZeroAndWithinItsLimitsFinite) {
  EXPECT_EQ(leq_exp(0.0f), 1.0f);
  EXPECT_EQ(leq_exp(-0.0f), 1.0f);
  EXPECT_GT(leq_exp(-87.0f), std::numeric_limits<float>::min());
  EXPECT_LT(leq_exp(88.0f), kInfinity);
}

TEST(FloatMath, ExpBeyondItsLimitsIsZeroOrInfinity) {
  const float below = std::nextafter(-87.0f, -kInfinity);
  for (const float x : {below, -100.0f, std::numeric_limits<float>::lowest(), -kInfinity}) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(leq_exp(x)), 0u) << x;  // +0, not -0
  }
  const float above = std::nextafter(88.0f, kInfinity);
  for (const float x : {above, 100.0f, std::numeric_limits<float>::max(), kInfinity}) {
    EXPECT_EQ(leq_exp(x), kInfinity) << x;
  }
}

TEST(FloatMath, ExpKeepsNan) {
  EXPECT_TRUE(std::isnan(leq_exp(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(leq_exp(-std::numeric_limits<float>::quiet_NaN())));
}

// Kernels rely on these bits, so the test must detect any change of coefficients or order. They
// were computed with exact rational arithmetic that rounds each operation to f32 as in the header.
TEST(FloatMath, ExpHasTheseBits) {
  struct Case {
    float x;
    std::uint32_t bits;
  };
  constexpr Case kCases[] = {
      {-0x1.5cp+6f, 0x00b33687},    {-0x1.2345p+6f, 0x0af6b7f9},  {-0x1.921fb6p+3f, 0x366a0810},
      {-0x1.8p+0f, 0x3e647c3c},     {-0x1.62e43p-2f, 0x3f3504f3}, {-0x1.333332p-5f, 0x3f7693e9},
      {0x1.0p-24f, 0x3f800000},     {0x1.99999ap-4f, 0x3f8d763e}, {0x1.62e43p-1f, 0x40000000},
      {0x1.0p+0f, 0x402df854},      {0x1.5bf0a8p+1f, 0x417277da}, {0x1.4p+3f, 0x46ac14ef},
      {0x1.abcdeep+5f, 0x660deafe}, {0x1.6p+6f, 0x7ef882b7},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(leq_exp(c.x)), c.bits) << c.x;
  }
}

TEST(FloatMath, SiluAndGeluFollowTheirFormulas) {
  // 1 + exp and the division add two roundings to exp's error. gelu's argument adds an error that
  // is magnified by |2 u| where exp is large, so gelu's error is relative to max(1, |x|).
  for (int i = -4000; i <= 4000; ++i) {
    const float x = static_cast<float>(i) * 0.01f;
    const double d = x;
    const double silu_truth = d / (1 + std::exp(-d));
    EXPECT_NEAR(silu(x), silu_truth, 3 * kUlp * std::abs(silu_truth)) << x;
    const double gelu_truth =
        0.5 * d * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (d + 0.044715 * d * d * d)));
    EXPECT_NEAR(gelu_new(x), gelu_truth, 4 * kUlp * std::max(1.0, std::abs(d))) << x;
  }
}

TEST(FloatMath, SiluAndGeluOfLargeInputsAreTheInputOrZero) {
  EXPECT_EQ(silu(1000.0f), 1000.0f);
  EXPECT_EQ(silu(-1000.0f), 0.0f);
  EXPECT_EQ(gelu_new(1e20f), 1e20f);
  EXPECT_EQ(gelu_new(-1e20f), 0.0f);
}

}  // namespace
}  // namespace leq
