// Compares every f16 and bf16 pattern, and a dense sample of floats, with the definition in double.
#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "naive_half.h"

namespace leq {
namespace {

template <class Narrow>
void expect_pattern(float x, Narrow narrow, double expected, int mantissa_bits) {
  const std::uint16_t pattern = narrow(x);
  const double found = test::value_of_pattern(pattern, mantissa_bits);
  ASSERT_EQ(found, expected) << x;
  ASSERT_EQ((pattern & 0x8000) != 0, std::signbit(x)) << x;
}

void expect_narrowed(float x) {
  if (std::isnan(x)) {
    ASSERT_TRUE(std::isnan(test::value_of_pattern(f32_to_f16(x), 10)));
    ASSERT_TRUE(std::isnan(test::value_of_pattern(f32_to_bf16(x), 7)));
    return;
  }
  const double wide = static_cast<double>(x);
  const double infinity = std::copysign(INFINITY, wide);
  const bool f16_overflows = std::fabs(wide) >= 65520;  // half way from 65504 to 65536
  expect_pattern(x, f32_to_f16, f16_overflows ? infinity : test::nearest_f16(wide), 10);
  const double bf16 = std::isinf(x) ? wide : test::nearest_bf16(wide);
  expect_pattern(x, f32_to_bf16, std::fabs(bf16) >= 0x1p128 ? infinity : bf16, 7);
}

TEST(Half, EveryPatternWidensToItsValueAndComesBack) {
  for (unsigned i = 0; i < 65536; ++i) {
    const auto pattern = static_cast<std::uint16_t>(i);
    const double f16 = test::value_of_pattern(pattern, 10);
    const double bf16 = test::value_of_pattern(pattern, 7);
    if (std::isnan(f16)) {
      ASSERT_TRUE(std::isnan(f16_to_f32(pattern)));
    } else {
      ASSERT_EQ(static_cast<double>(f16_to_f32(pattern)), f16) << i;
      ASSERT_EQ(f32_to_f16(f16_to_f32(pattern)), pattern) << i;
    }
    if (std::isnan(bf16)) {
      ASSERT_TRUE(std::isnan(bf16_to_f32(pattern)));
    } else {
      ASSERT_EQ(static_cast<double>(bf16_to_f32(pattern)), bf16) << i;
      ASSERT_EQ(f32_to_bf16(bf16_to_f32(pattern)), pattern) << i;
    }
  }
}

TEST(Half, SignedZeroSurvives) {
  EXPECT_EQ(f32_to_f16(-0.0f), 0x8000);
  EXPECT_TRUE(std::signbit(f16_to_f32(0x8000)));
  EXPECT_EQ(f32_to_bf16(-0.0f), 0x8000);
}

TEST(Half, NarrowsToNearestEvenAtAndAroundEveryTie) {
  for (unsigned i = 0; i < 0x7c00; ++i) {
    const double low = test::value_of_pattern(static_cast<std::uint16_t>(i), 10);
    const double next =
        i == 0x7bff ? 65536 : test::value_of_pattern(static_cast<std::uint16_t>(i + 1), 10);
    const auto middle = static_cast<float>((low + next) / 2);
    for (const float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      expect_narrowed(x);
      expect_narrowed(-x);
    }
  }
}

TEST(Half, NarrowsASampleOfAllFloats) {
  for (std::uint64_t bits = 0; bits < (1ull << 32); bits += 4099) {
    expect_narrowed(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  expect_narrowed(std::numeric_limits<float>::max());
  expect_narrowed(std::numeric_limits<float>::infinity());
  expect_narrowed(-std::numeric_limits<float>::infinity());
  expect_narrowed(std::numeric_limits<float>::denorm_min());
}

}  // namespace
}  // namespace leq
