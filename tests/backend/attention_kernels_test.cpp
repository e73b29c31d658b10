// Attention kernels: each instruction set gives the same bits as the portable kernel, and
// conversions agree with the software f16 of base/half.h.
#include "backend/cpu/kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "backend/kv_types.h"
#include "base/cpu_features.h"
#include "base/half.h"
#include "base/random.h"

namespace leq::cpu {
namespace {

const KvKernels& of_type(Isa isa, KvType type) {
  return attention_kernels(isa).kv[static_cast<std::size_t>(type)];
}

TEST(AttentionKernels, WidenEveryF16) {
  std::vector<std::uint16_t> halves;
  for (std::uint32_t h = 0; h < 65536; ++h) {
    if ((h & 0x7c00u) != 0x7c00u || (h & 0x3ffu) == 0) {  // NaN payloads are not compared
      halves.push_back(static_cast<std::uint16_t>(h));
    }
  }
  for (const Isa isa : supported_isas()) {
    std::vector<float> wide(halves.size());
    of_type(isa, KvType::f16).widen(halves.data(), std::ssize(halves), wide.data());
    for (std::size_t i = 0; i < halves.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]),
                std::bit_cast<std::uint32_t>(f16_to_f32(halves[i])))
          << isa_name(isa) << " " << halves[i];
    }
  }
}

// Includes bit patterns of all exponents, and ties between adjacent f16 numbers.
std::vector<float> hard_numbers() {
  std::vector<float> numbers = {0.0f,   -0.0f, 65504.0f, 65519.9f,     65520.0f, -1e30f,
                                1e-10f, 6e-8f, 2.98e-8f, 2.980232e-8f, -3e-8f};
  for (std::uint32_t h = 0; h < 0x7bff; h += 3) {
    const float low = f16_to_f32(static_cast<std::uint16_t>(h));
    const float high = f16_to_f32(static_cast<std::uint16_t>(h + 1));
    const float middle = low + (high - low) * 0.5f;
    numbers.insert(numbers.end(),
                   {middle, -middle, std::nextafter(middle, high), std::nextafter(middle, low)});
  }
  return numbers;
}

TEST(AttentionKernels, NarrowToNearestEvenAndClamp) {
  const auto numbers = hard_numbers();
  for (const Isa isa : supported_isas()) {
    std::vector<std::uint16_t> halves(numbers.size());
    of_type(isa, KvType::f16)
        .store(numbers.data(), std::ssize(numbers), halves.data(), nullptr, nullptr);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const float clamped = std::clamp(numbers[i], -65504.0f, 65504.0f);
      ASSERT_EQ(halves[i], f32_to_f16(clamped)) << isa_name(isa) << " " << numbers[i];
    }
  }
}

// Tests rows of any magnitude: the stored minimum is at most the smallest number, the last code
// reaches the largest number, and every number is off by at most half a step.
TEST(AttentionKernels, EncodeCoversEachRow) {
  Random random(9);
  const KvKernels& portable = of_type(Isa::portable, KvType::int8);
  for (int trial = 0; trial < 3000; ++trial) {
    const auto n = static_cast<std::int64_t>(1 + random.below(70));
    const float size = std::ldexp(1.0f, static_cast<int>(random.below(40)) - 24);
    const float shift = trial % 3 == 0 ? size * 50 : 0.0f;
    std::vector<float> x(static_cast<std::size_t>(n));
    for (float& v : x) v = random.normal() * size + shift;
    if (trial % 7 == 0) std::fill(x.begin(), x.end(), x[0]);
    std::uint16_t scale = 0, minimum = 0;
    std::vector<std::uint8_t> codes(x.size());
    portable.store(x.data(), n, codes.data(), &scale, &minimum);
    const double s = f16_to_f32(scale), m = f16_to_f32(minimum);
    double low = 65504, high = -65504;
    for (const float v : x) {
      low = std::min(low, std::clamp(double{v}, -65504.0, 65504.0));
      high = std::max(high, std::clamp(double{v}, -65504.0, 65504.0));
    }
    ASSERT_LE(m, low);
    ASSERT_GE(m + 255 * s, high - 1e-6 * std::abs(high));  // high - m is one f32 rounding
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double v = std::clamp(double{x[i]}, -65504.0, 65504.0);
      ASSERT_LE(std::abs(m + s * codes[i] - v), s * 0.501 + 1e-6 * std::abs(v)) << v;
    }
    // A constant row is encoded within max(2^-10 |x|, 2^-24).
    if (trial % 7 == 0) {
      const double v = std::clamp(double{x[0]}, -65504.0, 65504.0);
      ASSERT_LE(std::abs(m + s * codes[0] - v), std::max(0x1p-10 * std::abs(v), 0x1p-24));
    }
    for (const Isa isa : supported_isas()) {
      std::uint16_t other_scale = 0, other_minimum = 0;
      std::vector<std::uint8_t> other(x.size());
      of_type(isa, KvType::int8).store(x.data(), n, other.data(), &other_scale, &other_minimum);
      ASSERT_EQ(scale, other_scale) << isa_name(isa) << " trial " << trial;
      ASSERT_EQ(minimum, other_minimum) << isa_name(isa) << " trial " << trial;
      ASSERT_EQ(codes, other) << isa_name(isa) << " trial " << trial;
    }
  }
}

TEST(AttentionKernels, ZeroRowsHaveCodesZero) {
  const std::vector<float> zeros = {0.0f, -0.0f, 0.0f, -0.0f, 0.0f};
  for (const Isa isa : supported_isas()) {
    std::uint16_t scale = 7, minimum = 7;
    std::vector<std::uint8_t> codes(5, 9);
    of_type(isa, KvType::int8).store(zeros.data(), 5, codes.data(), &scale, &minimum);
    EXPECT_EQ(scale, 0);
    EXPECT_EQ(minimum, 0) << "the sign of zero depends on nothing";
    EXPECT_EQ(codes, std::vector<std::uint8_t>(5, 0));
  }
}

TEST(AttentionKernels, SoftmaxOfEveryRangeOfASpan) {
  Random random(4);
  std::vector<float> scores(kSpanTokens);
  for (float& s : scores) s = random.normal() * 20;
  for (int trial = 0; trial < 400; ++trial) {
    const int first = static_cast<int>(random.below(kSpanTokens));
    const int last =
        first + 1 + static_cast<int>(random.below(static_cast<std::uint32_t>(kSpanTokens - first)));
    double total = 0;
    const float largest = *std::max_element(scores.begin() + first, scores.begin() + last);
    for (int j = first; j < last; ++j)
      total += std::exp(double{scores[static_cast<std::size_t>(j)]} - largest);
    std::vector<float> want(scores);
    const SpanSum sum = attention_kernels(Isa::portable).softmax(want.data(), first, last);
    ASSERT_EQ(sum.max, largest);
    ASSERT_NEAR(sum.total, total, 1e-5 * total);  // 32 additions per lane, each off by 2^-24
    for (const Isa isa : supported_isas()) {
      std::vector<float> have(scores);
      const SpanSum other = attention_kernels(isa).softmax(have.data(), first, last);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(sum.total), std::bit_cast<std::uint32_t>(other.total));
      const int begin = first / 16 * 16, end = (last + 15) / 16 * 16;
      for (int j = begin; j < end; ++j) {
        const auto at = static_cast<std::size_t>(j);
        ASSERT_EQ(want[at], have[at]) << isa_name(isa) << " column " << j;
        if (j < first || j >= last) {
          ASSERT_EQ(have[at], 0.0f);
        }
      }
    }
  }
}

TEST(AttentionKernels, RotationKeepsTheLengthOfEachPair) {
  Random random(8);
  for (const Isa isa : supported_isas()) {
    for (const std::int64_t half : {1, 7, 8, 16, 33, 64}) {
      std::vector<float> x(static_cast<std::size_t>(2 * half)), c, s;
      for (float& v : x) v = random.normal();
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = random.uniform() * 6.0;
        c.push_back(static_cast<float>(std::cos(angle)));
        s.push_back(static_cast<float>(std::sin(angle)));
      }
      std::vector<float> y(x);
      attention_kernels(isa).rotate(c.data(), s.data(), half, y.data());
      for (std::int64_t i = 0; i < half; ++i) {
        const auto a = static_cast<std::size_t>(i), b = static_cast<std::size_t>(i + half);
        EXPECT_NEAR(std::hypot(x[a], x[b]), std::hypot(y[a], y[b]), 1e-6);
        EXPECT_EQ(y[a], std::fma(-x[b], s[a], x[a] * c[a])) << isa_name(isa);
        EXPECT_EQ(y[b], std::fma(x[a], s[a], x[b] * c[a])) << isa_name(isa);
      }
    }
  }
}

}  // namespace
}  // namespace leq::cpu
