// Tests ranges of minimal weighted error, and the methods that use such ranges.
#include <gtest/gtest.h>

#include <limits>

#include "errors.h"
#include "quantize/methods/method.h"
#include "synthetic_site.h"

namespace leq {
namespace {

using namespace test;

constexpr std::int64_t kRangeColumns = 256;

// Returns the weighted error of the nearest codes for this scale, in double.
double error_at(std::span<const float> x, std::span<const float> w, double scale, int zero,
                CodeLimits limits) {
  double total = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double value = static_cast<double>(x[i]);
    const double code =
        std::clamp(std::nearbyint(value / scale) + zero, static_cast<double>(limits.low),
                   static_cast<double>(limits.high));
    total += static_cast<double>(w[i]) * std::pow(value - scale * (code - zero), 2);
  }
  return total;
}

double mean_error(RangeRule rule, int bits, const std::vector<float>& weight, std::size_t group) {
  const std::vector<float> ones(group, 1.0f);
  const CodeLimits limits = code_limits({CodeKind::int_, bits, Scaling::group, 32});
  double total = 0;
  for (std::size_t first = 0; first < weight.size(); first += group) {
    const auto x = std::span(weight).subspan(first, group);
    total += error_at(x, ones, static_cast<double>(rule(x, ones, bits).scale), 0, limits);
  }
  return total;
}

TEST(Ranges, SignedAndWeightedScalesAreWorthWhatTheyShouldBe) {
  Random random(20);
  std::vector<float> weight(32 * 4096);
  for (float& value : weight) value = random.normal();
  const double absmax = mean_error(fit_absmax, 4, weight, 32);
  const double with_sign = mean_error(fit_signed, 4, weight, 32);
  const double weighted = mean_error(fit_weighted, 4, weight, 32);
  // These ratios to the error of absmax / 7 were measured on bell-shaped weights: 0.78 and 0.695.
  EXPECT_NEAR(with_sign / absmax, 0.78, 0.04);
  EXPECT_NEAR(weighted / absmax, 0.69, 0.05);
}

TEST(Ranges, WeightedOnesOrderAsTheyShouldAtEveryWidth) {
  const auto weight = heavy_tailed(21, 64 * 1024);
  for (const int bits : {2, 3, 4}) {
    const double absmax = mean_error(fit_absmax, bits, weight, 64);
    const double with_sign = mean_error(fit_signed, bits, weight, 64);
    const double weighted = mean_error(fit_weighted, bits, weight, 64);
    EXPECT_LE(weighted, with_sign) << bits;
    EXPECT_LE(with_sign, absmax) << bits;
  }
  EXPECT_LE(mean_error(fit_weighted, 8, weight, 64), mean_error(fit_signed, 8, weight, 64));
}

// Tries all scales in fine steps, with both signs: the search must be close to the best of them.
TEST(Ranges, TheSearchIsCloseToTheBestScaleThereIs) {
  const auto weight = heavy_tailed(22, 64 * 32);
  const auto importance = normals(23, 32);
  std::vector<float> w;
  for (const float value : importance) w.push_back(value * value + 0.01f);
  double found = 0, best = 0;
  const CodeLimits limits{-4, 3};
  for (std::size_t first = 0; first < weight.size(); first += 32) {
    const auto x = std::span(weight).subspan(first, 32);
    const double scale = static_cast<double>(fit_weighted(x, w, 3).scale);
    const double absmax = static_cast<double>(fit_absmax(x, w, 3).scale) * 3;
    double least = std::numeric_limits<double>::infinity();
    for (int i = 40; i <= 6000; ++i) {
      for (const double sign : {-1.0, 1.0}) {
        least = std::min(least, error_at(x, w, sign * absmax * i / 1000 / 4, 0, limits));
      }
    }
    const double mine = error_at(x, w, scale, 0, limits);
    EXPECT_GE(mine, least * 0.99);
    found += mine;
    best += least;
  }
  EXPECT_LE(found, 1.06 * best);
}

TEST(Ranges, ZeroPointsWithWeightsBeatThoseOfMinAndMax) {
  const auto weight = heavy_tailed(24, 32 * kRangeColumns);
  const auto x = correlated_inputs(25, 256, kRangeColumns);
  const InputStatistics statistics = statistics_of(x, kRangeColumns);
  for (const char* scheme : {"uint4-g128", "uint3-g64", "uint2-g32"}) {
    MethodInput input = method_input(weight, kRangeColumns, scheme);
    input.statistics = &statistics;
    const auto plain = rounded_by("zeropoint", input), weighted = rounded_by("rtn", input);
    const WeightPair of_plain{weight, plain, input.rows, kRangeColumns, nullptr};
    const WeightPair of_weighted{weight, weighted, input.rows, kRangeColumns, nullptr};
    EXPECT_LT(diagonal_error(of_weighted, statistics), 0.9 * diagonal_error(of_plain, statistics))
        << scheme;
  }
}

TEST(Rtn, LessWeightedErrorThanAbsmaxWhereInputsDiffer) {
  const auto weight = heavy_tailed(26, 64 * kRangeColumns);
  const auto x = correlated_inputs(27, 512, kRangeColumns);
  const InputStatistics statistics = statistics_of(x, kRangeColumns);
  struct Case {
    const char* scheme;
    double most;  // relative to absmax's error
  };
  for (const Case& c :
       {Case{"int4-g32", 0.8}, Case{"int3-g64", 0.8}, Case{"int2-g32", 0.7}, Case{"int8", 1.0}}) {
    MethodInput input = method_input(weight, kRangeColumns, c.scheme);
    input.statistics = &statistics;
    const double rtn = output_error(x, weight, rounded_by("rtn", input), kRangeColumns);
    const double absmax = output_error(x, weight, rounded_by("absmax", input), kRangeColumns);
    EXPECT_LE(rtn, c.most * absmax) << c.scheme;
  }
}

TEST(Rtn, DoesNotDependOnTheSizeOfTheInputs) {
  const auto weight = heavy_tailed(28, 8 * kRangeColumns);
  auto x = correlated_inputs(29, 128, kRangeColumns);
  const InputStatistics one = statistics_of(x, kRangeColumns);
  for (float& value : x) value *= 16;
  const InputStatistics other = statistics_of(x, kRangeColumns);
  MethodInput input = method_input(weight, kRangeColumns, "int4-g32");
  input.statistics = &one;
  const auto first = rounded_by("rtn", input);
  input.statistics = &other;
  EXPECT_EQ(first, rounded_by("rtn", input));
}

TEST(Rtn, AChannelThatWasSilentStillGetsItsNearestCode) {
  const auto weight = normals(30, 4 * kRangeColumns);
  auto x = normals(31, 64 * kRangeColumns);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % kRangeColumns < 128) x[i] = 0;
  }
  const InputStatistics statistics = statistics_of(x, kRangeColumns);
  MethodInput input = method_input(weight, kRangeColumns, "int8-g32");
  input.statistics = &statistics;
  EXPECT_LT(relative_error(weight, rounded_by("rtn", input)), 1e-4);
}

TEST(Rtn, TheSameForAnyNumberOfThreads) {
  const auto weight = heavy_tailed(32, 33 * kRangeColumns);
  ThreadPool pool(4);
  for (const char* scheme : {"int4-g32", "uint3-g64", "int8"}) {
    MethodInput input = method_input(weight, kRangeColumns, scheme);
    const auto alone = rounded_by("rtn", input);
    input.pool = &pool;
    EXPECT_EQ(alone, rounded_by("rtn", input)) << scheme;
  }
}

TEST(Zeroquant, IsInt8WhereAGroupIsARow) {
  // All largest values are 127 * 2^-7, so both scales are 2^-7, which is exact in f16.
  auto weight = normals(33, 8 * 128, 0.2f);
  for (std::size_t row = 0; row < 8; ++row) weight[row * 128 + 5] = 127.0f / 128;
  const auto rows = require_method("zeroquant").choose(method_input(weight, 128, "int8")).codes;
  const auto groups =
      require_method("zeroquant").choose(method_input(weight, 128, "int8-g128")).codes;
  EXPECT_EQ(rows.codes, groups.codes);
  EXPECT_EQ(rows.scales, groups.scales);
}

TEST(Zeroquant, HalvingTheGroupIsNeverWorse) {
  const auto weight = heavy_tailed(34, 64 * kRangeColumns);
  double before = std::numeric_limits<double>::infinity();
  for (const char* scheme : {"int8", "int8-g128", "int8-g64", "int8-g32"}) {
    const double error = relative_error(
        weight, rounded_by("zeroquant", method_input(weight, kRangeColumns, scheme)));
    EXPECT_LE(error, before) << scheme;
    before = error;
  }
}

TEST(Zeroquant, BiasCorrectionKeepsTheMeanOfTheOutputs) {
  const auto weight = heavy_tailed(35, 16 * kRangeColumns);
  auto x = correlated_inputs(36, 64, kRangeColumns);
  for (float& value : x) value += 0.5f;
  const InputStatistics statistics = statistics_of(x, kRangeColumns);
  const MethodInput input = method_input(weight, kRangeColumns, "int4-g128");
  const auto found = rounded_by("zeroquant", input);
  ThreadPool pool(2);
  const auto delta = mean_difference({weight, found, input.rows, kRangeColumns, &pool}, statistics);
  ASSERT_EQ(std::ssize(delta), input.rows);
  for (std::size_t n = 0; n < delta.size(); ++n) {
    double wanted = 0, got = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t at = n * kRangeColumns + i % kRangeColumns;
      wanted += static_cast<double>(x[i]) * static_cast<double>(weight[at]);
      got += static_cast<double>(x[i]) * static_cast<double>(found[at]);
    }
    EXPECT_NEAR(wanted / 64, got / 64 + static_cast<double>(delta[n]), 1e-5);
  }
}

TEST(Methods, AreFoundByNameAndListedWhereThereIsNone) {
  EXPECT_EQ(require_method("rtn").name, "rtn");
  for (const QuantMethod& method : quant_methods()) {
    test::expect_error([] { require_method("best"); }, {method.name});
  }
}

TEST(ProxyError, IsTheErrorOfTheOutputs) {
  const auto weight = heavy_tailed(37, 19 * 96);
  const auto x = correlated_inputs(38, 200, 96);
  InputStatistics statistics = statistics_of(x, 96);
  const MethodInput input = method_input(weight, 96, "int3-g32");
  const auto found = rounded_by("absmax", input);
  ThreadPool pool(3);
  const WeightPair pair{weight, found, 19, 96, &pool};
  const double wanted = output_error(x, weight, found, 96);
  EXPECT_NEAR(proxy_error(pair, statistics), wanted, 1e-6 * wanted);  // products in f32
  EXPECT_NEAR(weight_error(pair), relative_error(weight, found), 1e-12);
  // For independent inputs of equal magnitude, proxy, diagonal and weight errors are equal.
  statistics.hessian.assign(96 * 96, 0.0);
  for (std::size_t i = 0; i < 96; ++i) {
    statistics.hessian[i * 97] = 4;
    statistics.square_sum[i] = 4;
  }
  EXPECT_NEAR(proxy_error(pair, statistics), weight_error(pair), 1e-7);
  EXPECT_NEAR(diagonal_error(pair, statistics), weight_error(pair), 1e-12);
}

}  // namespace
}  // namespace leq
