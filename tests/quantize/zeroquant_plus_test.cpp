#include "quantize/methods/zeroquant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "quantize/methods/method.h"
#include "quantize/methods/second_order.h"
#include "quantize/synthetic_layer.h"

namespace leq {
namespace {

constexpr double kSameSums = 1 + 1e-5;  // the method compares sums of f32 products

ChosenCodes zeroquant(const MethodInput& input) {
  return require_method("zeroquant").choose(input).codes;
}

// Returns d H d^T of each row by definition, in double.
std::vector<double> losses(const SyntheticLayer& layer, const ChosenCodes& chosen,
                           const QuantScheme& scheme) {
  std::vector<float> d = dequantize(chosen, layer.rows, layer.columns, scheme);
  for (std::size_t i = 0; i < d.size(); ++i) d[i] = layer.weight[i] - d[i];
  const auto columns = static_cast<std::size_t>(layer.columns);
  std::vector<double> all;
  for (std::size_t row = 0; row < d.size(); row += columns) {
    double loss = 0;
    for (std::size_t i = 0; i < columns; ++i) {
      for (std::size_t j = 0; j < columns; ++j) {
        loss += static_cast<double>(d[row + i]) * layer.statistics.hessian[i * columns + j] *
                static_cast<double>(d[row + j]);
      }
    }
    all.push_back(loss);
  }
  return all;
}

class ZeroquantPlus : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Schemes, ZeroquantPlus,
                         testing::Values("int8", "int8-g128", "int8-g32", "int4-g128", "int4-g32",
                                         "int3-g64", "int2-g32"),
                         test::named_by_text);

TEST_P(ZeroquantPlus, NoRowLosesMoreThanWithZeroquantAndAllTogetherLessThanHalf) {
  const SyntheticLayer layer = synthetic_layer(40, 150, 600);
  const MethodInput input = input_of(layer, GetParam());
  const auto plain = losses(layer, zeroquant(input), input.scheme);
  const auto found = losses(layer, choose_zeroquant_plus(input).codes, input.scheme);
  double before = 0, after = 0;
  for (std::size_t row = 0; row < plain.size(); ++row) {
    EXPECT_LE(found[row], plain[row] * kSameSums) << row;
    before += plain[row];
    after += found[row];
  }
  EXPECT_LT(after, 0.5 * before);
}

// Some inputs are always 0 and some weights are 0; no row may get worse.
TEST_P(ZeroquantPlus, DeadInputsAndEmptyGroupsDoNoHarm) {
  SyntheticLayer layer = synthetic_layer(12, 150, 600);
  std::fill_n(layer.weight.begin(), 150, 0.0f);            // a row
  std::fill_n(layer.weight.begin() + 300 + 64, 64, 0.0f);  // a group of another row
  for (std::size_t i = 0; i < 150; ++i) {
    for (std::size_t j = 0; j < 150; ++j) {
      if (i % 3 == 0 || j % 3 == 0) layer.statistics.hessian[i * 150 + j] = 0;
    }
    if (i % 3 == 0) layer.statistics.square_sum[i] = 0;
  }
  const MethodInput input = input_of(layer, GetParam());
  const auto plain = losses(layer, zeroquant(input), input.scheme);
  const ChosenCodes chosen = choose_zeroquant_plus(input).codes;
  const auto found = losses(layer, chosen, input.scheme);
  for (std::size_t row = 0; row < plain.size(); ++row) {
    EXPECT_LE(found[row], plain[row] * kSameSums) << row;
  }
  EXPECT_TRUE(std::all_of(chosen.codes.begin(), chosen.codes.begin() + 150,
                          [](int code) { return code == 0; }));
}

TEST_P(ZeroquantPlus, ScalesAreWhatTheFileHoldsAndCodesInRange) {
  const SyntheticLayer layer = synthetic_layer(40, 150, 600);
  const MethodInput input = input_of(layer, GetParam());
  const ChosenCodes found = choose_zeroquant_plus(input).codes;
  EXPECT_TRUE(found.zeros.empty());
  for (const float scale : found.scales) {
    ASSERT_TRUE(std::isfinite(scale) && scale != 0);
    if (input.scheme.scaling != Scaling::group) continue;
    const float ratio = scale / found.scale_mul;
    ASSERT_EQ(f16_to_f32(f32_to_f16(ratio)), ratio);
  }
  const CodeLimits limits = code_limits(input.scheme);
  const auto [low, high] = std::minmax_element(found.codes.begin(), found.codes.end());
  EXPECT_GE(*low, limits.low);
  EXPECT_LE(*high, limits.high);
}

TEST_P(ZeroquantPlus, LosesLessOnTokensNotSeen) {
  const SyntheticLayer layer = synthetic_layer(40, 150, 4096);
  const MethodInput input = input_of(layer, GetParam());
  const auto loss = [&](const ChosenCodes& codes) {
    return proxy_loss(layer, codes, input.scheme, layer.held_out);
  };
  EXPECT_LT(loss(choose_zeroquant_plus(input).codes), 0.5 * loss(zeroquant(input)));
}

TEST(ZeroquantPlusMethod, WithoutDescentAndNewScalesItIsZeroquant) {
  const SyntheticLayer layer = synthetic_layer(40, 150, 600);
  MethodInput input = input_of(layer, "int4-g32");
  const ChosenCodes plain = zeroquant(input);
  EXPECT_NE(choose_zeroquant_plus(input).codes.codes, plain.codes);
  EXPECT_NE(choose_zeroquant_plus(input).codes.scales, plain.scales);
  input.options.refit_scales = false;
  EXPECT_EQ(choose_zeroquant_plus(input).codes.scales, plain.scales);
  input.options.descent_passes = 0;
  EXPECT_EQ(choose_zeroquant_plus(input).codes.codes, plain.codes);
}

// zeroquant's codes represent the weights of live inputs exactly. Other scales may suit the weights
// of dead inputs better, but these do not matter, so such scales must not be used.
TEST(ZeroquantPlusMethod, DoesNotPayForDeadInputsWithErrorsOfLiveOnes) {
  constexpr std::int64_t kRows = 4, kColumns = 64;
  SyntheticLayer layer{kRows, kColumns, {}, {}, {}};
  std::vector<double> hessian(kColumns * kColumns);
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    const float code = i % 32 == 0 ? -8.0f : static_cast<float>(i % 7 - 3);
    const float off = i % 2 == 0 ? 0.0f : std::copysign(0.4f, code);
    layer.weight.push_back((code + off) / 64);
  }
  for (std::size_t k = 0; k < kColumns; k += 2) hessian[k * kColumns + k] = 100;
  layer.statistics = statistics_of(hessian, kColumns, 100);
  const MethodInput input = input_of(layer, "int4-g32");
  const ChosenCodes plain = zeroquant(input), found = choose_zeroquant_plus(input).codes;
  EXPECT_EQ(losses(layer, plain, input.scheme), std::vector<double>(kRows));
  EXPECT_EQ(losses(layer, found, input.scheme), std::vector<double>(kRows));
  EXPECT_EQ(found.scales, plain.scales);
}

TEST(ZeroquantPlusMethod, CodesAndScalesDoNotDependOnTheNumberOfThreads) {
  const SyntheticLayer layer = synthetic_layer(300, 200, 800);
  MethodInput input = input_of(layer, "int4-g64");
  const ChosenCodes alone = choose_zeroquant_plus(input).codes;
  ThreadPool pool(4);
  input.pool = &pool;
  const ChosenCodes together = choose_zeroquant_plus(input).codes;
  EXPECT_EQ(alone.codes, together.codes);
  EXPECT_EQ(alone.scales, together.scales);
}

TEST(ZeroquantPlusMethod, SupportsWhatZeroquantSupports) {
  const QuantMethod& plus = require_method("zeroquant+");
  EXPECT_TRUE(plus.teacher_inputs);
  for (const char* name : {"int8", "int8-g32", "int2-g128", "int8-tensor", "uint4-g64", "nf4"}) {
    const QuantScheme scheme = *parse_scheme(name);
    EXPECT_EQ(plus.supports(scheme), require_method("zeroquant").supports(scheme)) << name;
  }
  EXPECT_FALSE(plus.supports(*parse_scheme("int8-tensor")));
}

}  // namespace
}  // namespace leq
