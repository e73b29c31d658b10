// Compares logarithm and power of base 2 with the C library; the bits are equal on all machines.
#include "base/fixed_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr int kTrials = 200000;

TEST(FixedLog, IsTheLogarithm) {
  Random random(1);
  double worst = 0;
  for (int i = 0; i < kTrials; ++i) {
    const int exponent = static_cast<int>(random.below(2000)) - 1000;
    const double x = std::ldexp(0.5 + double{random.uniform()}, i % 4 == 0 ? exponent : 0);
    const double want = std::log2(x);
    worst = std::max(worst, std::abs(fixed_log2(x) - want) / std::max(0.25, std::abs(want)));
  }
  EXPECT_LT(worst, 1e-15);
  for (int e = -1022; e <= 1023; ++e) EXPECT_EQ(fixed_log2(std::ldexp(1.0, e)), e);
}

TEST(FixedLog, IsThePower) {
  Random random(2);
  double worst = 0;
  for (int i = 0; i < kTrials; ++i) {
    const double x = (double{random.uniform()} - 0.5) * (i % 2 == 0 ? 4 : 2000);
    const double want = std::exp2(x);
    worst = std::max(worst, std::abs(fixed_exp2(x) - want) / want);
  }
  EXPECT_LT(worst, 1e-15);
  for (int e = -1022; e <= 1023; ++e) EXPECT_EQ(fixed_exp2(e), std::ldexp(1.0, e));
  EXPECT_EQ(fixed_exp2(-1022.5), 0);
  EXPECT_EQ(fixed_exp2(-1e300), 0);
  EXPECT_EQ(fixed_exp2(1e300), std::numeric_limits<double>::infinity());
}

TEST(FixedLog, HasTheSameBitsEverywhere) {
  Random random(3);
  std::vector<double> values;
  for (int i = 0; i < 10000; ++i) {
    values.push_back(fixed_log2(1e-3 + 100 * double{random.uniform()}));
    values.push_back(fixed_exp2(60 * double{random.uniform()} - 30));
  }
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  EXPECT_EQ(sha256_hex({bytes, values.size() * sizeof(double)}),
            "ce257e81c2cde39f68fd056bc9f5a09cdb8a457a7c549838ce8350e4b34c5a7f");
}

}  // namespace
}  // namespace leq
