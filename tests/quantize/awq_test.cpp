#include "quantize/rewrites/fold.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "case_names.h"
#include "synthetic_site.h"

namespace leq {
namespace {

using namespace test;

constexpr std::int64_t kAwqColumns = 128;

AwqOptions with_scheme(const char* scheme) {
  AwqOptions options;
  options.scheme = *parse_scheme(scheme);
  return options;
}

struct Outcome {
  double plain = 0;   // errors computed from the outputs
  double scaled = 0;  // with scales
  double all = 0;     // with scales and clipping
};

// Computes what the runtime computes: inputs divided by the scales, rounded weights.
Outcome outcome(const SyntheticSite& site, const std::vector<float>& x, const char* scheme) {
  const AwqOptions options = with_scheme(scheme);
  const AwqResult result = apply_awq(site.view(), options);
  const auto method = options.scheme.kind == CodeKind::uint_ ? "zeropoint" : "absmax";
  const auto& weight = site.weights[0];
  const auto undo = [&](std::vector<float> rounded) {
    for (std::size_t i = 0; i < rounded.size(); ++i) {
      rounded[i] /= result.found.scales[i % kAwqColumns];
    }
    return output_error(x, weight, rounded, kAwqColumns);
  };
  auto scaled = weight;
  for (std::size_t i = 0; i < scaled.size(); ++i) scaled[i] *= result.found.scales[i % kAwqColumns];
  Outcome found;
  found.plain = output_error(
      x, weight, rounded_by(method, method_input(weight, kAwqColumns, scheme)), kAwqColumns);
  found.scaled = undo(rounded_by(method, method_input(scaled, kAwqColumns, scheme)));
  found.all = undo(rounded_by(method, method_input(result.weights[0], kAwqColumns, scheme)));
  EXPECT_NEAR(found.plain, result.found.plain_error, 1e-4 * found.plain);
  EXPECT_NEAR(found.scaled, result.found.error, 1e-4 * found.scaled);
  return found;
}

class AwqSchemes : public testing::TestWithParam<const char*> {};

TEST_P(AwqSchemes, BeatsRoundingOnCorrelatedInputs) {
  const auto x = correlated_inputs(60, 256, kAwqColumns);
  const SyntheticSite site = synthetic_site({normals(63, 96 * kAwqColumns)}, x, kAwqColumns);
  const Outcome found = outcome(site, x, GetParam());
  EXPECT_LT(found.scaled, 0.8 * found.plain);
  EXPECT_LE(found.all, found.scaled * (1 + 1e-6));
}

TEST_P(AwqSchemes, IsNeverWorseThanRounding) {
  for (std::uint64_t seed = 64; seed < 68; ++seed) {
    const auto x = normals(seed, 64 * kAwqColumns);  // no possible gain
    const SyntheticSite site =
        synthetic_site({heavy_tailed(seed, 16 * kAwqColumns)}, x, kAwqColumns);
    const Outcome found = outcome(site, x, GetParam());
    EXPECT_LE(found.scaled, found.plain * (1 + 1e-6));
    EXPECT_LE(found.all, found.scaled * (1 + 1e-6));
  }
}

INSTANTIATE_TEST_SUITE_P(Schemes, AwqSchemes,
                         testing::Values("uint4-g128", "uint3-g64", "int4-g32", "int3-g128"),
                         test::named_by_text);

TEST(Awq, ClippingHelpsWhereOneWeightStandsOut) {
  const auto x = normals(70, 128 * kAwqColumns);
  auto weight = normals(71, 32 * kAwqColumns, 0.1f);
  for (std::size_t row = 0; row < 32; ++row) weight[row * kAwqColumns + 3 * row] = 0.55f;
  const SyntheticSite site = synthetic_site({weight}, x, kAwqColumns);
  const std::vector<float> ones(kAwqColumns, 1.0f);
  const AwqOptions options = with_scheme("uint3-g128");
  const auto clipped =
      clip_weight(site.view().consumers[0], ones, options.scheme, {site.statistics, nullptr});
  EXPECT_NE(clipped, weight);
  for (std::size_t i = 0; i < weight.size(); ++i) {
    ASSERT_LE(std::fabs(clipped[i]), std::fabs(weight[i]));
    ASSERT_GE(std::fabs(clipped[i]), 0.54f * std::fabs(weight[i]));
  }
  const auto error = [&](const std::vector<float>& stored) {
    return output_error(x, weight,
                        rounded_by("zeropoint", method_input(stored, kAwqColumns, "uint3-g128")),
                        kAwqColumns);
  };
  EXPECT_LT(error(clipped), 0.97 * error(weight));
}

TEST(Awq, LeavesQAndKUnclipped) {
  const auto x = correlated_inputs(72, 128, kAwqColumns);
  auto weight = normals(73, 32 * kAwqColumns, 0.1f);
  for (std::size_t row = 0; row < 32; ++row) weight[row * kAwqColumns + 3 * row] = 0.6f;
  SyntheticSite site = synthetic_site({weight, weight, weight}, x, kAwqColumns);
  site.names = {"q", "k", "v"};
  const AwqResult result = apply_awq(site.view(), with_scheme("uint3-g128"));
  const auto scaled = scaled_columns(weight, result.found.scales);
  EXPECT_EQ(result.weights[0], scaled);
  EXPECT_EQ(result.weights[1], scaled);
  EXPECT_NE(result.weights[2], scaled);
}

TEST(Awq, WorksWithTheDiagonalAlone) {
  const auto x = correlated_inputs(74, 256, kAwqColumns);
  SyntheticSite site = synthetic_site({normals(75, 64 * kAwqColumns)}, x, kAwqColumns);
  site.statistics.hessian.clear();
  const AwqResult result = apply_awq(site.view(), with_scheme("uint4-g128"));
  EXPECT_LT(result.found.error, 0.9 * result.found.plain_error);
}

// Columns have inputs of different magnitudes, so that scaling helps.
std::vector<float> uneven_inputs(std::uint64_t seed, std::int64_t tokens) {
  auto x = normals(seed, tokens * kAwqColumns);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= i % kAwqColumns % 8 == 0 ? 6.0f : 1.0f;
  return x;
}

// Creates weights as decoded from a GGUF file of type Q4_1: a scale and a minimum per 32 columns,
// with codes from 0 to 15.
std::vector<float> decoded_q4_1(std::int64_t rows) {
  const auto noise = normals(90, rows * kAwqColumns);
  std::vector<float> weight(noise.size());
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const float scale = 0.01f * (1 + 0.2f * static_cast<float>(i / 32 % 7));
    const float any = std::clamp(std::round(7.5f + 3 * noise[i]), 0.0f, 15.0f);
    const float code = i % 32 == 0 ? 0.0f : i % 32 == 1 ? 15.0f : any;
    weight[i] = scale * (code - 7.3f);
  }
  return weight;
}

TEST(Awq, LeavesAWeightThatLiesOnItsGridAlready) {
  const SyntheticSite site =
      synthetic_site({decoded_q4_1(64)}, uneven_inputs(91, 256), kAwqColumns);
  const AwqScales found = search_awq_scales(site.view(), with_scheme("q4_k"));
  EXPECT_EQ(found.scales, std::vector<float>(kAwqColumns, 1.0f));
  EXPECT_LT(found.plain_error, 1e-4);
}

TEST(Awq, ScalesForScalesOfScales) {
  const auto x = uneven_inputs(92, 256);
  const SyntheticSite site = synthetic_site({normals(93, 64 * kAwqColumns)}, x, kAwqColumns);
  const AwqScales found = search_awq_scales(site.view(), with_scheme("q4_k"));
  EXPECT_LT(found.error, found.plain_error);
  // The plain error is that of the codes of rtn with unscaled inputs.
  MethodInput input = method_input(site.weights[0], kAwqColumns, "q4_k");
  input.statistics = &site.statistics;
  const double plain = output_error(x, site.weights[0], rounded_by("rtn", input), kAwqColumns);
  EXPECT_NEAR(found.plain_error, plain, 1e-3 * plain);
}

// v has 8 bits and is exact, so only q's errors remain, which are a hundred times as large.
TEST(Awq, EachConsumerIsRoundedAsItsOwnType) {
  const auto x = uneven_inputs(94, 128);
  SyntheticSite site = synthetic_site(
      {normals(95, 32 * kAwqColumns), normals(96, 32 * kAwqColumns)}, x, kAwqColumns);
  AwqOptions options = with_scheme("q4_k");
  const double both = search_awq_scales(site.view(), options).plain_error;
  options.of_consumers = {*parse_scheme("q4_k"), *parse_scheme("int8-g32")};
  const double one = search_awq_scales(site.view(), options).plain_error;
  EXPECT_GT(one, 0.4 * both);
  EXPECT_LT(one, 0.6 * both);
}

TEST(Awq, TiedChannelsShareAScale) {
  const auto x = correlated_inputs(76, 128, kAwqColumns);
  SyntheticSite site = synthetic_site({normals(77, 32 * kAwqColumns)}, x, kAwqColumns);
  for (std::size_t k = 0; k < kAwqColumns; ++k) site.scale_of[k] = static_cast<std::int32_t>(k / 2);
  const AwqScales found = search_awq_scales(site.view(), with_scheme("uint4-g128"));
  EXPECT_EQ(std::ssize(found.scales), kAwqColumns / 2);
  EXPECT_LE(found.error, found.plain_error);
}

TEST(Awq, ASearchOverSomeRowsIsStillNeverWorse) {
  const auto x = correlated_inputs(78, 128, kAwqColumns);
  const SyntheticSite site = synthetic_site({normals(79, 64 * kAwqColumns)}, x, kAwqColumns);
  AwqOptions options = with_scheme("uint4-g128");
  options.search_rows = 8;
  const AwqScales few = search_awq_scales(site.view(), options);
  EXPECT_LT(few.error, few.plain_error);
}

TEST(Awq, TheSameForAnyNumberOfThreads) {
  const auto x = correlated_inputs(80, 64, kAwqColumns);
  const SyntheticSite site = synthetic_site({normals(81, 33 * kAwqColumns)}, x, kAwqColumns);
  ThreadPool pool(4);
  const AwqResult alone = apply_awq(site.view(), with_scheme("uint4-g64"));
  const AwqResult together = apply_awq(site.view(&pool), with_scheme("uint4-g64"));
  EXPECT_EQ(alone.found.scales, together.found.scales);
  EXPECT_EQ(alone.weights, together.weights);
}

TEST(Awq, NeedsStatistics) {
  SyntheticSite site =
      synthetic_site({normals(82, 4 * kAwqColumns)}, normals(83, 8 * kAwqColumns), kAwqColumns);
  site.statistics.abs_sum.clear();
  EXPECT_THROW(search_awq_scales(site.view(), {}), Error);
}

}  // namespace
}  // namespace leq
