#include "quantize/rewrites/fold.h"

#include <gtest/gtest.h>
#include <limits>

#include "base/error.h"
#include "synthetic_site.h"

namespace leq {
namespace {

using namespace test;

constexpr std::int64_t kSmoothColumns = 128;

// Returns inputs with a few channels that are 30 times as large as the others.
std::vector<float> inputs_with_outliers(std::uint64_t seed, std::int64_t tokens) {
  auto x = normals(seed, tokens * kSmoothColumns);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % kSmoothColumns % 32 == 9) x[i] *= 30;
  }
  return x;
}

SyntheticSite outlier_site() {
  return synthetic_site(
      {normals(51, 64 * kSmoothColumns, 0.05f), normals(52, 40 * kSmoothColumns, 0.1f)},
      inputs_with_outliers(50, 96), kSmoothColumns);
}

float column_peak(const SyntheticSite& site, std::size_t k) {
  float peak = 0;
  for (const auto& weight : site.weights) {
    for (std::size_t i = k; i < weight.size(); i += kSmoothColumns) {
      peak = std::max(peak, std::fabs(weight[i]));
    }
  }
  return peak;
}

TEST(Smoothquant, AlphaOneHalfBalancesInputsAndWeights) {
  const SyntheticSite site = outlier_site();
  const auto scales = smoothing_scales(site.view(), 0.5);
  for (std::size_t k = 0; k < kSmoothColumns; ++k) {
    const float input = site.statistics.absmax[k] / scales[k];
    EXPECT_NEAR(input / (column_peak(site, k) * scales[k]), 1.0f, 1e-5f);
  }
}

TEST(Smoothquant, AlphaOneMovesEverything) {
  const SyntheticSite site = outlier_site();
  const auto all = smoothing_scales(site.view(), 1.0);
  for (std::size_t k = 0; k < kSmoothColumns; ++k) {
    EXPECT_NEAR(site.statistics.absmax[k] / all[k], 1.0f, 1e-5f);
  }
}

TEST(Smoothquant, ASilentChannelKeepsItsSizeAndTinyOnesAreClamped) {
  SyntheticSite site = outlier_site();
  site.statistics.absmax[3] = 0;
  site.statistics.absmax[4] = 1e-30f;
  site.statistics.absmax[5] = 1e30f;
  const auto scales = smoothing_scales(site.view(), 0.9);
  EXPECT_EQ(scales[3], 1.0f);
  for (const float scale : scales) EXPECT_TRUE(scale >= 0.99e-5f && scale <= 1.01e5f) << scale;
}

TEST(Smoothquant, TiedChannelsShareTheScaleOfTheLargest) {
  SyntheticSite site = outlier_site();
  for (std::size_t k = 0; k < kSmoothColumns; ++k) {
    site.scale_of[k] = static_cast<std::int32_t>(k % 32 + k / 64 * 32);
  }
  const auto scales = smoothing_scales(site.view(), 0.5);
  ASSERT_EQ(scales.size(), 64u);
  for (std::size_t j = 0; j < 64; ++j) {
    const std::size_t a = j % 32 + j / 32 * 64, b = a + 32;
    const double x = std::max(site.statistics.absmax[a], site.statistics.absmax[b]);
    const double w = std::max(column_peak(site, a), column_peak(site, b));
    EXPECT_NEAR(scales[j], std::sqrt(x / w), 1e-4 * std::sqrt(x / w));
  }
}

double error_at_alpha(const SyntheticSite& site, double alpha, SmoothingOptions options = {},
                      ThreadPool* pool = nullptr) {
  options.alphas = {alpha};
  const SmoothingChoice choice = search_smoothing(site.view(pool), options);
  return choice.alpha ? choice.error : std::numeric_limits<double>::infinity();
}

TEST(Smoothquant, ErrorOverAlphaHasOneValleyAndIsFarBelowNone) {
  const SyntheticSite site = outlier_site();
  const double none = search_smoothing(site.view(), {}).plain_error;
  EXPECT_LT(error_at_alpha(site, 0.5), 0.35 * none);
  std::vector<double> errors;
  for (int i = 0; i <= 10; ++i) errors.push_back(error_at_alpha(site, 0.1 * i));
  const auto lowest = std::min_element(errors.begin(), errors.end()) - errors.begin();
  EXPECT_GT(lowest, 2);
  EXPECT_LT(lowest, 9);
  EXPECT_GT(errors.front(), 2 * errors[static_cast<std::size_t>(lowest)]);
  EXPECT_GT(errors.back(), 2 * errors[static_cast<std::size_t>(lowest)]);
}

// What a quantization takes from the search.
TEST(Smoothquant, AFoldWithoutAlphaHasTheScalesOfTheBest) {
  const SyntheticSite site = outlier_site();
  BlockTensors block;
  SmoothingSite where = {.name = "site",
                         .producer = Producer::run_time,
                         .columns = kSmoothColumns,
                         .scale_of = site.scale_of,
                         .scales = kSmoothColumns};
  for (const auto& weight : site.weights) {
    where.consumers.push_back("w" + std::to_string(where.consumers.size()));
    block.parts[where.consumers.back()] = {std::ssize(weight) / kSmoothColumns, kSmoothColumns,
                                           weight};
  }
  ThreadPool pool(1);
  TensorPlan plan;
  const auto fold = [&](const char* type) {
    plan.scheme = *parse_scheme(type);
    return smoothing_fold(std::nullopt)
        .choose({where, block, site.statistics, [&](const std::string&) { return plan; }, pool})
        .scales;
  };
  for (const char* type : {"int8", "int4"}) {
    const auto scales = fold(type);
    const SmoothingChoice best =
        search_smoothing(site.view(), {.weight = plan.scheme, .act = plan.act});
    ASSERT_TRUE(best.alpha) << type;
    EXPECT_EQ(scales, best.scales) << type;
  }
  EXPECT_TRUE(fold("f16").empty());
}

// Computes the simulated site again, token by token in double.
TEST(Smoothquant, ErrorIsThatOfTheRoundedSite) {
  const SyntheticSite site = outlier_site();
  const auto s = smoothing_scales(site.view(), 0.6);
  const auto& x = site.statistics.samples;
  double error = 0, energy = 0;
  for (const auto& weight : site.weights) {
    for (std::size_t n = 0; n < weight.size(); n += kSmoothColumns) {
      double largest_w = 0;
      for (std::size_t k = 0; k < kSmoothColumns; ++k) {
        largest_w = std::max(largest_w, std::fabs(static_cast<double>(weight[n + k] * s[k])));
      }
      for (std::size_t t = 0; t < x.size(); t += kSmoothColumns) {
        double largest_x = 0, y = 0, q = 0;
        for (std::size_t k = 0; k < kSmoothColumns; ++k) {
          largest_x = std::max(largest_x, std::fabs(static_cast<double>(x[t + k] / s[k])));
        }
        for (std::size_t k = 0; k < kSmoothColumns; ++k) {
          const double xs = largest_x / 127, ws = largest_w / 127;
          const double xq = std::nearbyint(static_cast<double>(x[t + k] / s[k]) / xs) * xs;
          const double wq = std::nearbyint(static_cast<double>(weight[n + k] * s[k]) / ws) * ws;
          y += static_cast<double>(x[t + k]) * static_cast<double>(weight[n + k]);
          q += xq * wq;
        }
        error += (y - q) * (y - q);
        energy += y * y;
      }
    }
  }
  ThreadPool pool(3);
  EXPECT_NEAR(error_at_alpha(site, 0.6, {}, &pool), error / energy, 1e-3 * error / energy);
}

// Returns `weight` with each row repeated `times` times.
std::vector<float> rows_repeated(const std::vector<float>& weight, int times) {
  std::vector<float> repeated;
  for (std::size_t n = 0; n < weight.size(); n += kSmoothColumns) {
    const auto row = weight.begin() + static_cast<std::ptrdiff_t>(n);
    for (int i = 0; i < times; ++i) repeated.insert(repeated.end(), row, row + kSmoothColumns);
  }
  return repeated;
}

TEST(Smoothquant, SomeRowsStandForAWeightOfMany) {
  const auto x = inputs_with_outliers(54, 32);
  const auto many = normals(56, kSearchRows * kSmoothColumns),
             few = normals(57, 16 * kSmoothColumns, 4.0f);
  const auto tall =
      search_smoothing(synthetic_site({rows_repeated(many, 3), few}, x, kSmoothColumns).view(), {});
  const auto whole =
      search_smoothing(synthetic_site({many, many, many, few}, x, kSmoothColumns).view(), {});
  EXPECT_EQ(tall.alpha, whole.alpha);
  EXPECT_EQ(tall.scales, whole.scales);
  EXPECT_NEAR(tall.error, whole.error, 1e-9 * whole.error);
  EXPECT_NEAR(tall.plain_error, whole.plain_error, 1e-9 * whole.plain_error);
}

TEST(Smoothquant, AScaleForTheTensorSeesAllRows) {
  auto weight = normals(58, (kSearchRows + 1) * kSmoothColumns);
  weight[kSearchRows / 2 * kSmoothColumns + 5] = 100;  // in the row that a search would skip
  SmoothingOptions options;
  options.act = ActKind::none;
  const auto x = normals(59, 32 * kSmoothColumns);
  const auto by_row = search_smoothing(synthetic_site({weight}, x, kSmoothColumns).view(), options);
  options.weight.scaling = Scaling::tensor;
  const auto by_tensor =
      search_smoothing(synthetic_site({weight}, x, kSmoothColumns).view(), options);
  EXPECT_GT(by_tensor.plain_error, 100 * by_row.plain_error);
}

TEST(Smoothquant, SearchTakesTheLeastAndIsNeverWorseThanNothing) {
  const SyntheticSite site = outlier_site();
  for (const SmoothingPreset& preset : smoothing_presets()) {
    SmoothingOptions options;
    options.weight = preset.weight;
    options.act = preset.act;
    const SmoothingChoice choice = search_smoothing(site.view(), options);
    ASSERT_TRUE(choice.alpha.has_value()) << preset.name;
    EXPECT_LT(choice.error, choice.plain_error) << preset.name;
    EXPECT_EQ(choice.scales, smoothing_scales(site.view(), *choice.alpha));
    for (const double alpha : options.alphas) {
      EXPECT_LE(choice.error, error_at_alpha(site, alpha, options)) << preset.name;
    }
  }
}

TEST(Smoothquant, NothingIsMovedWhereThatWouldHurt) {
  // All inputs are 1 and all columns of weights have similar ranges, so scales hardly help.
  const auto x = std::vector<float>(32 * kSmoothColumns, 1.0f);
  auto weight = normals(53, 32 * kSmoothColumns);
  const SyntheticSite site = synthetic_site({weight}, x, kSmoothColumns);
  SmoothingOptions options;
  options.act = ActKind::none;  // only weights are rounded, so a common small scale is as good as 1
  const SmoothingChoice choice = search_smoothing(site.view(), options);
  EXPECT_LE(choice.error, choice.plain_error);
  if (!choice.alpha) {
    EXPECT_EQ(choice.scales, std::vector<float>(kSmoothColumns, 1.0f));
  }
  // int8 represents these inputs and weights exactly, so no scales can be better.
  std::vector<float> grid(32 * kSmoothColumns);
  for (std::size_t i = 0; i < grid.size(); ++i) {
    grid[i] =
        i % kSmoothColumns == 0 ? 127.0f : static_cast<float>(static_cast<int>(i * 37 % 200) - 100);
  }
  const SyntheticSite exact = synthetic_site({grid}, grid, kSmoothColumns);
  const SmoothingChoice none = search_smoothing(exact.view(), {});
  EXPECT_FALSE(none.alpha.has_value());
  EXPECT_EQ(none.scales, std::vector<float>(kSmoothColumns, 1.0f));
  EXPECT_LT(none.error, 1e-9);
}

TEST(Smoothquant, OrderOfTokensDoesNotMatter) {
  const auto x = inputs_with_outliers(54, 64);
  std::vector<float> turned;
  for (std::int64_t t = 63; t >= 0; --t) {
    turned.insert(turned.end(), x.begin() + t * kSmoothColumns,
                  x.begin() + (t + 1) * kSmoothColumns);
  }
  const auto weight = normals(55, 32 * kSmoothColumns);
  const auto one = search_smoothing(synthetic_site({weight}, x, kSmoothColumns).view(), {});
  const auto other = search_smoothing(synthetic_site({weight}, turned, kSmoothColumns).view(), {});
  EXPECT_EQ(one.alpha, other.alpha);
  EXPECT_EQ(one.scales, other.scales);
}

TEST(Smoothquant, TheSameForAnyNumberOfThreads) {
  const SyntheticSite site = outlier_site();
  ThreadPool pool(4);
  const auto alone = search_smoothing(site.view(), {});
  const auto together = search_smoothing(site.view(&pool), {});
  EXPECT_EQ(alone.scales, together.scales);
  EXPECT_EQ(alone.error, together.error);
}

TEST(Smoothquant, NeedsSampledTokens) {
  SyntheticSite site = outlier_site();
  site.statistics.samples.clear();
  EXPECT_THROW(search_smoothing(site.view(), {}), Error);
}

}  // namespace
}  // namespace leq
