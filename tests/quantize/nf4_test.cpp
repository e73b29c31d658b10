#include "tensor/nf4.h"

#include <gtest/gtest.h>

#include "synthetic_site.h"

namespace leq {
namespace {

using namespace test;

// Returns the quantile p of the standard normal distribution, by bisection with erf.
double normal_quantile(double p) {
  double low = -10, high = 10;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return low;
}

// Levels are quantiles at equal steps from 0.9677083 to 1/2: eight above zero, seven below.
TEST(Nf4, LevelsAreQuantilesOfTheNormalDistribution) {
  constexpr double kLast = 0.9677083;
  const double largest = normal_quantile(kLast);
  const auto& levels = kNf4Levels;
  for (int i = 0; i < 8; ++i) {
    const double up = normal_quantile(kLast + (0.5 - kLast) * i / 8) / largest;
    EXPECT_NEAR(levels[static_cast<std::size_t>(15 - i)], up, 2e-6) << i;
    if (i == 7) continue;
    const double down = -normal_quantile(kLast + (0.5 - kLast) * i / 7) / largest;
    EXPECT_NEAR(levels[static_cast<std::size_t>(i)], down, 2e-6) << i;
  }
  EXPECT_EQ(levels[7], 0.0f);
}

// Returns the scale of block b of 64 weights, which is the value of its largest level.
double size_of(const ChosenCodes& chosen, std::size_t b) {
  constexpr std::size_t kBlocks = 4;  // per row of 256
  const std::size_t part = b / kBlocks / 64;
  return static_cast<double>(chosen.scales[2 * part]) +
         static_cast<double>(chosen.zeros[b]) * static_cast<double>(chosen.scales[2 * part + 1]);
}

TEST(Nf4, EveryWeightGetsTheNearestLevelOfASizeNearTheLargest) {
  const auto weight = heavy_tailed(40, 80 * 256);
  const MethodInput input = method_input(weight, 256, "nf4");
  const ChosenCodes chosen = require_method("nf4").choose(input).codes;
  const auto found = values_of(input, chosen);
  for (std::size_t block = 0; block < weight.size() / 64; ++block) {
    const double size = size_of(chosen, block);
    double largest = 0;
    for (std::size_t i = block * 64; i < block * 64 + 64; ++i) {
      const auto x = static_cast<double>(weight[i]);
      largest = std::max(largest, std::fabs(x));
      double least = 1e9;
      for (const float level : kNf4Levels) {
        least = std::min(least, std::fabs(x - size * static_cast<double>(level)));
      }
      ASSERT_LE(std::fabs(x - static_cast<double>(found[i])), least + 1e-6 * size) << i;
    }
    ASSERT_NEAR(size, largest, 0.02 * largest);
  }
}

TEST(Nf4, ABlockOfZerosStaysZeroBesideLargeOnes) {
  auto weight = normals(42, 2 * 256, 100.0f);
  std::fill_n(weight.begin() + 64, 64, 0.0f);
  const auto found = rounded_by("nf4", method_input(weight, 256, "nf4"));
  for (std::size_t i = 64; i < 128; ++i) ASSERT_EQ(found[i], 0.0f);
}

}  // namespace
}  // namespace leq
