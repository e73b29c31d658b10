// The fixed scale of int8 activations, compared with a sort of all values, and the rule for when a
// fixed scale is not good enough.
#include "quantize/rewrites/fold.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "quantize/calibration/calibration.h"
#include "synthetic_site.h"

namespace leq {
namespace {

using namespace test;

constexpr std::int64_t kActColumns = 128;
constexpr double kBin = 1.0 / 32;  // width of a bin, relative to its start

double static_error(const std::vector<float>& x, double c) {
  double total = 0;
  for (const float value : x) {
    const double code =
        std::clamp(std::nearbyint(static_cast<double>(value) * 127 / c), -127.0, 127.0);
    total += std::pow(static_cast<double>(value) - code * c / 127, 2);
  }
  return total;
}

// Returns |x| in ascending order.
std::vector<float> sorted_sizes(const std::vector<float>& x) {
  std::vector<float> sizes;
  for (const float value : x) sizes.push_back(std::fabs(value));
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

// Returns the error of the best of three candidates, found by sorting all values.
double naive_error(const std::vector<float>& x) {
  const std::vector<float> sizes = sorted_sizes(x);
  double least = static_error(x, static_cast<double>(sizes.back()));
  for (const double share : {0.9999, 0.999}) {
    const auto at =
        static_cast<std::size_t>(std::ceil(share * static_cast<double>(sizes.size() - 1)));
    least = std::min(least, static_error(x, static_cast<double>(sizes[at])));
  }
  return least;
}

InputStatistics gathered(const std::vector<float>& x, std::int64_t samples) {
  InputStatistics statistics;
  ThreadPool pool(2);
  accumulate(statistics, {x, kActColumns, 0, std::ssize(x) / kActColumns},
             {.sample_tokens = static_cast<int>(samples)}, "x", pool);
  return statistics;
}

TEST(Histogram, QuantilesAreThoseOfTheSortedValuesToABin) {
  for (const float size : {1e-6f, 1.0f, 3e5f}) {
    const auto x = normals(56, 100000, size);
    Histogram histogram;
    for (const float value : x) histogram.add(value);
    const auto sizes = sorted_sizes(x);
    for (const double share : {0.1, 0.5, 0.9, 0.999, 0.9999}) {
      const auto sorted = static_cast<double>(sizes[static_cast<std::size_t>(share * 100000) - 1]);
      const auto found = static_cast<double>(histogram_quantile(histogram, share));
      EXPECT_GE(found, sorted);
      EXPECT_LE(found, sorted * (1 + 2 * kBin));
    }
  }
}

TEST(Histogram, ErrorIsThatOfRoundingTheValues) {
  const auto x = heavy_tailed(57, 100000);
  Histogram histogram;
  for (const float value : x) histogram.add(value);
  const float absmax = sorted_sizes(x).back();
  for (const double share : {1.0, 0.5, 0.2, 0.05}) {
    const double c = share * static_cast<double>(absmax);
    const double want = static_error(x, c);
    EXPECT_NEAR(rounding_error(histogram, absmax, static_cast<float>(c)), want, 0.03 * want);
  }
}

TEST(Histogram, HoldsValuesBeyondItsBins) {
  Histogram histogram;
  for (const float value : {0.0f, 1e-30f, -1e30f}) histogram.add(value, 2);
  EXPECT_EQ(histogram.counts.front(), 4u);
  EXPECT_EQ(histogram.counts.back(), 2u);
  EXPECT_EQ(histogram_edge(0), 0.0f);
  EXPECT_GT(histogram_quantile(histogram, 1.0), 4e9f);
}

TEST(StaticActScale, ClipsOnlyWhereThatHelps) {
  // There are no outliers, so the best scale covers almost the whole range.
  auto x = normals(56, 400000);
  EXPECT_GT(static_act_scale(x) * 127, 3.0f);
  // With one outlier, clipping costs less than the larger step would cost all other values.
  x[77] = 60;
  const float clipped = static_act_scale(x) * 127;
  EXPECT_LT(clipped, 4.0f);
  EXPECT_LT(static_error(x, static_cast<double>(clipped)), static_error(x, 60.0));
  // With few other values, a range that includes the outlier is better.
  x.resize(4000);
  EXPECT_EQ(static_act_scale(x), 60.0f / 127);
  EXPECT_EQ(static_act_scale(std::vector<float>(10)), 1.0f);
}

TEST(StaticActScale, IsAsGoodAsTheBestCandidateOfASort) {
  for (const float wild : {1.0f, 4.0f, 20.0f, 300.0f}) {
    auto x = heavy_tailed(58, 3000 * kActColumns);
    for (std::size_t i = 500; i < x.size(); i += 70001) x[i] *= wild;
    const auto scale = static_cast<double>(static_act_scale(gathered(x, 16)));
    EXPECT_LE(static_error(x, scale * 127), 1.05 * naive_error(x)) << wild;
  }
}

TEST(StaticActScale, SeesAllTokensOfAllFilesNotTheSamples) {
  auto x = normals(59, 800 * kActColumns);
  const auto token = x.begin() + 5 * kActColumns;  // not sampled
  for (std::int64_t k = 0; k < kActColumns; ++k) token[k] *= 50;
  const std::vector<float> first(x.begin(), x.begin() + 400 * kActColumns);
  const std::vector<float> second(x.begin() + 400 * kActColumns, x.end());
  InputStatistics joined = gathered(second, 8);
  merge(joined, gathered(first, 8));
  EXPECT_EQ(static_act_scale(joined), static_act_scale(x));
  EXPECT_GT(static_act_scale(joined), 2 * static_act_scale(joined.samples));
  EXPECT_EQ(joined.largest_token, std::vector<float>(token, token + kActColumns));
}

TEST(StaticActScale, AFoldKeepsTheLargestValueOfEachColumn) {
  auto x = normals(60, 400 * kActColumns);
  x[3] = 5000;  // not in any sample
  InputStatistics statistics = gathered(x, 4);
  const std::vector<float> scale(kActColumns, 2.0f);
  divide_inputs(statistics, scale);
  EXPECT_EQ(statistics.largest_token[3], 2500.0f);
  EXPECT_EQ(static_act_scale(statistics), 2500.0f / 127);
}

// The tokens are similar except one, which is an outlier in the input of one linear.
TEST(ActErrors, AWildTokenMakesAFixedScaleWorseThanOneByToken) {
  const auto weight = normals(61, 32 * kActColumns, 0.1f);
  const QuantScheme scheme = *parse_scheme("int8");
  const auto ratio = [&](const std::vector<float>& x) {
    SyntheticSite site = synthetic_site({weight}, x, kActColumns);
    site.statistics = gathered(x, 64);
    const ActErrors errors = act_errors(site.view(), scheme, static_act_scale(site.statistics));
    return errors.fixed / errors.by_token;
  };
  auto x = normals(62, 512 * kActColumns);
  EXPECT_LT(ratio(x), 2.0);
  for (std::int64_t k = 0; k < 4; ++k) x[static_cast<std::size_t>(k)] = 2000;
  EXPECT_GT(ratio(x), 10.0);
}

TEST(ActErrors, AreThoseOfTheRoundedSiteInDouble) {
  const auto weight = normals(63, 16 * kActColumns, 0.1f);
  const auto x = normals(64, 20 * kActColumns);
  SyntheticSite site = synthetic_site({weight}, x, kActColumns);
  site.statistics = gathered(x, 20);
  const float scale = 0.02f;
  const ActErrors errors = act_errors(site.view(), *parse_scheme("int8"), scale);
  auto tokens = x;  // counts the largest token once more
  tokens.insert(tokens.end(), site.statistics.largest_token.begin(),
                site.statistics.largest_token.end());
  double fixed = 0, by_token = 0;
  for (std::size_t n = 0; n < weight.size(); n += kActColumns) {
    const auto size = [](auto first) {
      float largest = 0;
      for (std::int64_t k = 0; k < kActColumns; ++k)
        largest = std::max(largest, std::fabs(first[k]));
      return static_cast<double>(largest) / 127;
    };
    const double of_row = size(weight.begin() + static_cast<std::ptrdiff_t>(n));
    for (std::size_t t = 0; t < tokens.size(); t += kActColumns) {
      const double of_token = size(tokens.begin() + static_cast<std::ptrdiff_t>(t));
      double y = 0, a = 0, b = 0;
      for (std::size_t k = 0; k < kActColumns; ++k) {
        const auto v = static_cast<double>(tokens[t + k]), w = static_cast<double>(weight[n + k]);
        const double wq = std::nearbyint(w / of_row) * of_row;
        const double s = static_cast<double>(scale);
        y += v * w;
        a += std::clamp(std::nearbyint(v / s), -127.0, 127.0) * s * wq;
        b += std::nearbyint(v / of_token) * of_token * wq;
      }
      fixed += (y - a) * (y - a);
      by_token += (y - b) * (y - b);
    }
  }
  EXPECT_NEAR(errors.fixed, fixed, 0.01 * fixed);
  EXPECT_NEAR(errors.by_token, by_token, 0.01 * by_token);
}

}  // namespace
}  // namespace leq
