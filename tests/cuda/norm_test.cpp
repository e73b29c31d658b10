// Norm and quantization of rows on the emulator, compared with double.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "cuda/kernels/launch.h"
#include "cuda/layout/layout.h"
#include "device_memory.h"

namespace leq::LEQ_GPU {
namespace {

struct Shape {
  int width;
  int group;      // columns per scale
  int sum_group;  // columns per sum; 0: no sums
  NormForm form;
};

class Norm : public testing::TestWithParam<Shape> {};

constexpr int kTokens = 3;

// The tolerance for f32 sums of a few thousand products in another order than in double.
constexpr double kTolerance = 2e-6;

std::vector<double> norm_in_double(const float* x, const std::vector<float>& gain,
                                   const std::vector<float>& beta, const Shape& shape) {
  const auto n = static_cast<std::size_t>(shape.width);
  double mean = 0, squares = 0;
  if (shape.form == NormForm::layer) {
    for (std::size_t k = 0; k < n; ++k) mean += double{x[k]} / shape.width;
  }
  for (std::size_t k = 0; k < n; ++k) squares += (x[k] - mean) * (x[k] - mean) / shape.width;
  std::vector<double> y(n);
  for (std::size_t k = 0; k < n; ++k) {
    y[k] = (x[k] - mean) / std::sqrt(squares + 1e-5) * gain[k];
    if (shape.form == NormForm::layer) y[k] += beta[k];
  }
  return y;
}

TEST_P(Norm, ValuesCodesScalesAndSumsAreThoseOfTheRow) {
  const Shape shape = GetParam();
  const auto width = static_cast<std::size_t>(shape.width);
  const auto stride = static_cast<std::size_t>(float_stride(shape.width));
  const auto padded = static_cast<std::size_t>(padded_columns(shape.width));
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> x(kTokens * stride), gain(width), beta(width);
  for (float& value : x) value = normal(random);
  for (float& value : gain) value = 1 + 0.1f * normal(random);
  for (float& value : beta) value = normal(random);

  const DeviceArray<float> x_there(x), gain_there(gain), beta_there(beta);
  const DeviceArray<float> out(x.size());
  const std::size_t scale_stride = shape.group == 0 ? 1 : padded / 128;
  const std::size_t sum_stride =
      shape.sum_group == 0 ? 0 : padded / static_cast<std::size_t>(shape.sum_group);
  const DeviceArray<std::int8_t> codes_there(kTokens * padded);
  const DeviceArray<float> scales_there(kTokens * scale_stride);
  const DeviceArray<std::int32_t> sums_there(kTokens * sum_stride);
  const DeviceArray<unsigned long long> fault(std::vector<unsigned long long>{~0ull});
  NormArguments a;
  a.x = {x_there.data(), static_cast<std::int64_t>(stride)};
  a.out = {out.data(), static_cast<std::int64_t>(stride)};
  a.tokens = kTokens;
  a.width = shape.width;
  a.form = shape.form;
  a.gain = gain_there.data();
  a.beta = beta_there.data();
  a.eps = 1e-5f;
  a.quantize.out = {codes_there.data(),
                    scales_there.data(),
                    sum_stride > 0 ? sums_there.data() : nullptr,
                    static_cast<std::int64_t>(padded),
                    static_cast<std::int64_t>(scale_stride),
                    static_cast<std::int64_t>(sum_stride),
                    shape.group,
                    shape.sum_group};
  a.quantize.fault = {fault.data(), 1};
  write_late({x_there.bytes()});
  launch_norm(a, test_stream());

  const auto y = out.host();
  const auto codes = codes_there.host();
  const auto scales = scales_there.host();
  const auto sums = sums_there.host();
  EXPECT_EQ(fault.host()[0], ~0ull);
  for (std::size_t t = 0; t < kTokens; ++t) {
    const auto want = norm_in_double(x.data() + t * stride, gain, beta, shape);
    std::vector<int> group_sums(sum_stride);
    for (std::size_t k = 0; k < padded; ++k) {
      const int code = codes[t * padded + k];
      if (sum_stride > 0) group_sums[k / static_cast<std::size_t>(shape.sum_group)] += code;
      if (k >= width) {
        EXPECT_EQ(code, 0);
        continue;
      }
      const float value = y[t * stride + k];
      EXPECT_NEAR(value, want[k], kTolerance * (1 + std::abs(want[k])));
      const std::size_t first = shape.group == 0 ? 0 : k / 128 * 128;
      const std::size_t last = shape.group == 0 ? width : std::min(first + 128, width);
      float largest = 0;
      for (std::size_t i = first; i < last; ++i) {
        largest = std::max(largest, std::abs(y[t * stride + i]));
      }
      EXPECT_EQ(scales[t * scale_stride + (shape.group == 0 ? 0 : k / 128)], largest / 127.0f);
      EXPECT_EQ(code, static_cast<int>(std::nearbyint(value * (127.0f / largest))));
    }
    for (std::size_t i = 0; i < sum_stride; ++i) EXPECT_EQ(sums[t * sum_stride + i], group_sums[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Norm,
                         testing::Values(Shape{777, 0, 0, NormForm::rms},
                                         Shape{160, 128, 0, NormForm::rms},
                                         Shape{1000, 128, 32, NormForm::layer},
                                         Shape{256, 0, 256, NormForm::layer},
                                         Shape{4096, 0, 64, NormForm::rms},
                                         // with the kernel's static memory, more than 48 KB
                                         Shape{12200, 0, 0, NormForm::rms}));

}  // namespace
}  // namespace leq::LEQ_GPU
