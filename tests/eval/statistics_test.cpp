// Compares with textbook values: tables of Student's t, worked examples of tests and intervals.
#include "eval/statistics.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace leq {
namespace {

TEST(Statistics, CriticalValuesOfStudentsT) {
  // The values of the two-sided 5 % and 1 % tables, to three decimals.
  struct Entry {
    double freedom, five, one;
  };
  constexpr std::array<Entry, 7> kTable = {{{1, 12.706, 63.657},
                                            {2, 4.303, 9.925},
                                            {5, 2.571, 4.032},
                                            {10, 2.228, 3.169},
                                            {30, 2.042, 2.750},
                                            {120, 1.980, 2.617},
                                            {1e6, 1.960, 2.576}}};
  for (const Entry& entry : kTable) {
    EXPECT_NEAR(student_t_critical(0.05, entry.freedom), entry.five, 5.1e-4) << entry.freedom;
    EXPECT_NEAR(student_t_critical(0.01, entry.freedom), entry.one, 5.1e-4) << entry.freedom;
  }
}

TEST(Statistics, ProbabilitiesInClosedForm) {
  // Student's t with one degree of freedom is the Cauchy distribution; with two it is algebraic.
  for (const double t : {0.1, 1.0, 3.0, 20.0}) {
    EXPECT_NEAR(student_t_two_sided(t, 1), 1 - 2 * std::atan(t) / M_PI, 1e-12);
    EXPECT_NEAR(student_t_two_sided(-t, 2), 1 - t / std::sqrt(2 + t * t), 1e-12);
  }
  EXPECT_DOUBLE_EQ(student_t_two_sided(0, 7), 1);
  EXPECT_NEAR(incomplete_beta(1, 1, 0.3), 0.3, 1e-14);
  EXPECT_NEAR(incomplete_beta(2, 3, 0.4), 0.5248, 1e-12);  // 1 - a binomial sum
  EXPECT_NEAR(incomplete_beta(2.5, 1.5, 0.7) + incomplete_beta(1.5, 2.5, 0.3), 1, 1e-13);
}

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

// Student's own example (1908): hours of sleep gained by ten patients with two drugs.
TEST(Statistics, StudentsSleepData) {
  const std::vector<double> first = {0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0};
  const std::vector<double> second = {1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4};
  const PairedTest test = paired_t_test(first, second);
  EXPECT_EQ(test.pairs, 10);
  EXPECT_NEAR(test.mean, -1.58, 1e-12);
  EXPECT_NEAR(test.t, -4.0621, 5e-5);
  EXPECT_NEAR(test.p, 0.002833, 5e-7);
  EXPECT_NEAR(test.confidence.low, -2.4598858, 5e-7);
  EXPECT_NEAR(test.confidence.high, -0.7001142, 5e-7);
  EXPECT_NEAR(test.effect, test.t / std::sqrt(10.0), 1e-12);
  EXPECT_NEAR(bonferroni(test.p, 10), 0.02833, 5e-6);
  EXPECT_EQ(bonferroni(0.3, 10), 1);
}

TEST(Statistics, EqualDifferencesAreNoDivisionByZero) {
  const std::vector<double> a = {1, 2, 3}, b = {0, 1, 2};
  EXPECT_EQ(paired_t_test(a, a).p, 1);
  EXPECT_EQ(paired_t_test(a, b).p, 0);
  EXPECT_EQ(paired_t_test(a, b).mean, 1);
}

TEST(Statistics, UnpairedOrTooFewValuesAreRefused) {
  EXPECT_THROW(paired_t_test(std::vector<double>{1, 2}, std::vector<double>{1}), Error);
  EXPECT_THROW(paired_t_test(std::vector<double>{1}, std::vector<double>{2}), Error);
}

TEST(Statistics, BootstrapOfTheMeanIsSeededAndNearTheNormalInterval) {
  std::vector<double> values;
  for (int i = 0; i < 400; ++i) values.push_back(std::sin(i * 1.7) + 0.01 * i);
  double mean = 0, squares = 0;
  for (const double value : values) mean += value / 400;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const double half = 1.96 * std::sqrt(squares / 399 / 400);
  const Interval interval = bootstrap_mean(values, 1);
  EXPECT_NEAR(interval.low, mean - half, 0.12 * half);
  EXPECT_NEAR(interval.high, mean + half, 0.12 * half);
  const Interval again = bootstrap_mean(values, 1), other = bootstrap_mean(values, 2);
  EXPECT_EQ(interval.low, again.low);
  EXPECT_NE(interval.low, other.low);
  EXPECT_EQ(bootstrap_mean(std::vector<double>{3}, 1).high, 3);
}

}  // namespace
}  // namespace leq
