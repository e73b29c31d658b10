// The Hadamard rotation of rows and its inverse, compared with its matrix in double.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "cuda/kernels/launch.h"
#include "cuda/layout/layout.h"
#include "device_memory.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kTokens = 2, kWidth = 192, kBlock = 64;
// The tolerance for f32 sums of 64 numbers around 1.
constexpr double kTolerance = 1e-6;

std::vector<float> rotated(const std::vector<float>& rows, const std::vector<float>& factors,
                           bool back, bool centred) {
  const DeviceArray<float> x(rows), factors_there(factors);
  write_late({x.bytes()});
  launch_rotate({{x.data(), kWidth}, kTokens, kWidth, kBlock, factors_there.data(), back, centred},
                test_stream());
  return x.host();
}

class Rotate : public testing::Test {
 protected:
  Rotate() : rows(kTokens * kWidth), factors(kWidth) {
    std::mt19937 random(2);
    std::normal_distribution<float> normal(0.3f);
    for (float& x : rows) x = normal(random);
    for (float& f : factors) f = random() % 2 == 0 ? 0.125f : -0.125f;  // 1 / sqrt(64)
  }
  std::vector<float> rows, factors;
};

TEST_F(Rotate, InEqualsTheMatrixOfSigns) {
  for (const bool centred : {false, true}) {
    const auto found = rotated(rows, factors, false, centred);
    for (std::size_t t = 0; t < kTokens; ++t) {
      double mean = 0;
      for (std::size_t k = 0; k < kWidth; ++k) mean += rows[t * kWidth + k] / double{kWidth};
      for (std::size_t k = 0; k < kWidth; ++k) {
        double sum = 0;
        for (std::size_t i = k / kBlock * kBlock; i < (k / kBlock + 1) * kBlock; ++i) {
          const double sign = std::popcount(i % kBlock & k % kBlock) % 2 == 0 ? 1 : -1;
          sum += sign * (rows[t * kWidth + i] - (centred ? mean : 0)) * factors[i];
        }
        ASSERT_NEAR(found[t * kWidth + k], sum, kTolerance) << "row " << t << ", column " << k;
      }
    }
  }
}

TEST_F(Rotate, BackUndoesIn) {
  const auto found = rotated(rotated(rows, factors, false, false), factors, true, false);
  for (std::size_t i = 0; i < rows.size(); ++i) ASSERT_NEAR(found[i], rows[i], kTolerance) << i;
}

}  // namespace
}  // namespace leq::LEQ_GPU
