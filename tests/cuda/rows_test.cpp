// Rows of the residual stream: embedding, gathering, codes of finished rows, and what a step with
// act online needs from the host.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "cuda/kernels/launch.h"
#include "cuda/layout/layout.h"
#include "int_matmul_case.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kTokens = 3, kWidth = 200;
constexpr std::int64_t kStride = float_stride(kWidth);

std::vector<float> random_floats(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = normal(random);
  return numbers;
}
float at(const std::vector<float>& rows, int row, int k) {
  return rows[static_cast<std::size_t>(row * kStride + k)];
}

// Stores rows 4, 0 and 4 of a table, then adds the same rows to them.
template <class Expected>
void expect_embedding(EmbedArguments a, const Expected& expected) {
  const std::vector<std::int32_t> ids = {4, 0, 4};
  const DeviceArray<std::int32_t> ids_there(ids);
  const DeviceArray<float> out(random_floats(kTokens * kStride, 5));
  a.width = kWidth;
  a.ids = ids_there.data();
  a.tokens = kTokens;
  a.x = {out.data(), kStride};
  for (const int times : {1, 2}) {
    a.add = times == 2;
    write_late({out.bytes()});
    launch_embed(a, test_stream());
    const auto found = out.host();
    for (int t = 0; t < kTokens; ++t) {
      for (int k = 0; k < kWidth; ++k) {
        const float row = expected(ids[static_cast<std::size_t>(t)], k);
        ASSERT_EQ(at(found, t, k), times == 1 ? row : row + row) << "token " << t << ", " << k;
      }
    }
  }
}

TEST(Residual, AddsTheRowsOfTheTokensAlone) {
  const auto x = random_floats(kTokens * kStride, 6), y = random_floats(kTokens * kStride, 7);
  const DeviceArray<float> sum(x), added(y);
  write_late({sum.bytes(), added.bytes()});
  launch_add_rows({{sum.data(), kStride}, {added.data(), kStride}, kTokens - 1, kWidth, 0.75f},
                  test_stream());
  const auto found = sum.host();
  for (int t = 0; t < kTokens; ++t) {
    for (int k = 0; k < kWidth; ++k) {
      const float sum_of = (at(x, t, k) + at(y, t, k)) * 0.75f;
      ASSERT_EQ(at(found, t, k), t < kTokens - 1 ? sum_of : at(x, t, k));
    }
  }
}

// The kernel has its own tanh, which is compared with double's.
TEST(Residual, CapsTheRowsWithLogitsAlone) {
  constexpr double kTolerance = 2e-5;
  auto x = random_floats(kTokens * kStride, 8);
  for (float& number : x) number *= 40;
  const DeviceArray<float> logits(x);
  write_late({logits.bytes()});
  launch_cap_rows({{logits.data(), kStride}, kTokens - 1, kWidth, 0.75f, 20}, test_stream());
  const auto found = logits.host();
  for (int t = 0; t < kTokens; ++t) {
    for (int k = 0; k < kWidth; ++k) {
      const double number = at(x, t, k);
      const double expected = t < kTokens - 1 ? 20 * std::tanh(0.75 * number / 20) : number;
      ASSERT_NEAR(at(found, t, k), expected, kTolerance) << t << ", " << k;
    }
  }
}

TEST(Embed, FloatTablesGiveTheirRows) {
  auto numbers = random_floats(5 * kStride, 1);
  std::vector<std::uint16_t> halves(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    halves[i] = f32_to_f16(numbers[i]);
    numbers[i] = f16_to_f32(halves[i]);  // exact in both
  }
  const DeviceArray<float> floats(numbers);
  const DeviceArray<std::uint16_t> f16(halves);
  EmbedArguments a;
  const auto expected = [&](int row, int k) { return at(numbers, row, k); };
  a.floats = {floats.data(), FloatType::f32};
  expect_embedding(a, expected);
  a.floats = {f16.data(), FloatType::f16};
  expect_embedding(a, expected);
}

TEST(Embed, CodesBecomeTheirNumbers) {
  for (const IntCase& c :
       {IntCase{8, false, 0, 0, 1, kWidth, {5}}, IntCase{8, true, 128, 0, 1, kWidth, {5}},
        IntCase{4, true, 32, 0, 1, kWidth, {5}}, IntCase{3, false, 128, 0, 1, kWidth, {5}},
        IntCase{2, true, 64, 0, 1, kWidth, {5}}}) {
    const IntMatmulData data(c);
    EmbedArguments a;
    a.is_float = false;
    a.codes = data.segment(0).weight;
    expect_embedding(a, [&](int row, int k) { return data.weight(0, row, k); });
  }
}

TEST(Gather, RowsComeInTheOrderAskedFor) {
  const auto rows = random_floats(5 * kStride, 2);
  const std::vector<std::int32_t> picked = {3, 3, 0};
  const DeviceArray<float> from(rows), to(static_cast<std::size_t>(3 * kStride));
  const DeviceArray<std::int32_t> picked_there(picked);
  write_late({from.bytes()});
  launch_gather({{from.data(), kStride}, {to.data(), kStride}, picked_there.data(), 3, kWidth},
                test_stream());
  const auto found = to.host();
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < kWidth; ++k) {
      ASSERT_EQ(at(found, i, k), at(rows, picked[static_cast<std::size_t>(i)], k));
    }
  }
}

// Rows are smoothed and encoded with a known scale, which clips some numbers.
TEST(Quantize, RowsAreSmoothedAndCodedWithTheKnownScale) {
  auto rows = random_floats(kTokens * kStride, 3);
  rows[7] = 100.0f;  // far out of range
  const auto factors = random_floats(kWidth, 4);
  const std::int64_t padded = padded_columns(kWidth);
  const DeviceArray<float> x(rows), smooth(factors), scales(kTokens);
  const DeviceArray<std::int8_t> codes(static_cast<std::size_t>(kTokens * padded));
  const DeviceArray<unsigned long long> fault(std::vector<unsigned long long>{~0ull});
  QuantizeArguments a;
  a.x = {x.data(), kStride};
  a.tokens = kTokens;
  a.width = kWidth;
  a.inv_smooth = smooth.data();
  a.quantize.out = {codes.data(), scales.data(), nullptr, padded, 1, 0, 0, 0};
  a.quantize.scale = 0.02f;
  a.quantize.inverse = 1.0f / 0.02f;
  a.quantize.fault = {fault.data(), 6};
  write_late({x.bytes()});
  launch_quantize(a, test_stream());
  const auto found = codes.host();
  for (int t = 0; t < kTokens; ++t) {
    ASSERT_EQ(scales.host()[static_cast<std::size_t>(t)], 0.02f);
    for (int k = 0; k < padded; ++k) {
      const float y = k < kWidth ? at(rows, t, k) * factors[static_cast<std::size_t>(k)] : 0.0f;
      ASSERT_EQ(found[static_cast<std::size_t>(t * padded + k)],
                std::nearbyint(std::clamp(y * a.quantize.inverse, -127.0f, 127.0f)))
          << "row " << t << ", column " << k;
    }
  }
  EXPECT_EQ(fault.host()[0], ~0ull);
}

TEST(Quantize, TheFirstRowThatIsNotFiniteIsReported) {
  auto rows = random_floats(kTokens * kStride, 3);
  rows[static_cast<std::size_t>(kStride + 150)] = std::numeric_limits<float>::infinity();
  rows[static_cast<std::size_t>(2 * kStride)] = std::numeric_limits<float>::quiet_NaN();
  const std::int64_t padded = padded_columns(kWidth);
  const DeviceArray<float> x(rows), scales(kTokens * 2);
  const DeviceArray<std::int8_t> codes(static_cast<std::size_t>(kTokens * padded));
  for (const int group : {0, 128}) {
    const DeviceArray<unsigned long long> fault(std::vector<unsigned long long>{~0ull});
    QuantizeArguments a;
    a.x = {x.data(), kStride};
    a.tokens = kTokens;
    a.width = kWidth;
    a.quantize.out = {codes.data(), scales.data(), nullptr, padded, 2, 0, group, 0};
    a.quantize.fault = {fault.data(), 6};
    launch_quantize(a, test_stream());
    EXPECT_EQ(fault.host()[0], (6ull << 32) + 1) << "group " << group;
  }
}

}  // namespace
}  // namespace leq::LEQ_GPU
