// Compares with textbook values of quantiles and intervals.
#include "eval/multiple_choice.h"

#include <gtest/gtest.h>

#include <array>

namespace leq {
namespace {

TEST(Statistics, NormalQuantiles) {
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-12);
  EXPECT_NEAR(normal_quantile(0.5), 0, 1e-12);
  EXPECT_NEAR(normal_quantile(0.001), -3.090232306167813, 1e-10);
}

TEST(Statistics, WilsonsInterval) {
  // Newcombe 1998, table I, method 3: intervals for 81 of 263, 15 of 148, 0 of 20 and 1 of 29.
  struct Case {
    std::int64_t successes, trials;
    double low, high;
  };
  constexpr std::array<Case, 4> kCases = {{{81, 263, 0.2553, 0.3662},
                                           {15, 148, 0.0624, 0.1605},
                                           {0, 20, 0.0000, 0.1611},
                                           {1, 29, 0.0061, 0.1718}}};
  for (const Case& one : kCases) {
    const Interval interval = wilson_interval(one.successes, one.trials);
    EXPECT_NEAR(interval.low, one.low, 5.1e-5) << one.trials;
    EXPECT_NEAR(interval.high, one.high, 5.1e-5) << one.trials;
  }
  EXPECT_EQ(wilson_interval(20, 20).high, 1);
}

}  // namespace
}  // namespace leq
