#include "quantize/methods/gptq.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/half.h"
#include "quantize/methods/second_order.h"
#include "quantize/synthetic_layer.h"

namespace leq {
namespace {

// Losses are compared in double, but the methods use f32 sums.
constexpr double kSameLoss = 1 + 1e-6;

class GptqPlus : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Schemes, GptqPlus, testing::ValuesIn(kLayerSchemes), test::named_by_text);

TEST_P(GptqPlus, LosesNoMoreThanGptqAndGptqNoMoreThanTheNearestCodes) {
  const SyntheticLayer layer = synthetic_layer(40, 150, 600);
  const MethodInput input = input_of(layer, GetParam());
  const auto loss = [&](const ChosenCodes& codes) {
    return proxy_loss(layer, codes, input.scheme, layer.statistics.hessian);
  };
  const double plus = loss(choose_gptq_plus(input).codes);
  const double gptq = loss(choose_gptq(input).codes);
  EXPECT_LE(plus, gptq * kSameLoss);
  EXPECT_LE(gptq, loss(nearest_codes(input, weighted_ranges(input))) * kSameLoss);
  // With correlated inputs gptq+ loses 5 % less; with one scale per tensor, only codes can improve.
  const double gain = input.scheme.scaling == Scaling::tensor ? 1.0 : 0.95;
  EXPECT_LT(plus, gain * gptq);
}

TEST_P(GptqPlus, ScalesAreWhatTheFileHoldsAndCodesInRange) {
  const SyntheticLayer layer = synthetic_layer(40, 150, 600);
  const MethodInput input = input_of(layer, GetParam());
  const ChosenCodes found = choose_gptq_plus(input).codes;
  for (const float scale : found.scales) {
    ASSERT_TRUE(std::isfinite(scale) && scale != 0);
    if (input.scheme.scaling != Scaling::group) continue;
    const float ratio = scale / found.scale_mul;
    ASSERT_EQ(f16_to_f32(f32_to_f16(ratio)), ratio);
  }
  if (input.scheme.scaling == Scaling::tensor) {
    EXPECT_EQ(std::count(found.scales.begin(), found.scales.end(), found.scales[0]), 40);
  }
  const CodeLimits limits = code_limits(input.scheme);
  const auto [low, high] = std::minmax_element(found.codes.begin(), found.codes.end());
  EXPECT_GE(*low, limits.low);
  EXPECT_LE(*high, limits.high);
}

TEST_P(GptqPlus, WorksWhereAWholeGroupIsZero) {
  SyntheticLayer layer = synthetic_layer(10, 150, 600);
  std::fill_n(layer.weight.begin(), 150, 0.0f);            // a row
  std::fill_n(layer.weight.begin() + 300 + 64, 64, 0.0f);  // a group of another row
  const MethodInput input = input_of(layer, GetParam());
  const ChosenCodes found = choose_gptq_plus(input).codes;
  const std::vector<double> h = layer.statistics.hessian;
  EXPECT_TRUE(std::isfinite(proxy_loss(layer, found, input.scheme, h)));
  for (std::int64_t k = 0; k < 150; ++k) {
    const auto range = at(k / (input.scheme.scaling == Scaling::group ? input.scheme.group : 150));
    EXPECT_EQ(found.codes[at(k)], found.zeros.empty() ? 0 : found.zeros[range]) << k;
  }
}

TEST(GptqPlus, EachPartLowersTheLossOnTokensNotSeen) {
  const SyntheticLayer layer = synthetic_layer(96, 256, 4096);
  struct Expected {
    const char* scheme;
    double nearest, gptq, ranges, plus;  // limits, relative to nearest codes of plain ranges
  };
  for (const Expected& want :
       {Expected{"int4-g32", 0.60, 0.22, 0.17, 0.14}, Expected{"int3-g64", 0.66, 0.22, 0.17, 0.14},
        Expected{"int2-g32", 0.60, 0.25, 0.19, 0.14}}) {
    MethodInput input = input_of(layer, want.scheme);
    const auto loss = [&](const ChosenCodes& codes) {
      return proxy_loss(layer, codes, input.scheme, layer.held_out);
    };
    const double plain = loss(nearest_codes(input, plain_ranges(input)));
    const double nearest = loss(nearest_codes(input, weighted_ranges(input))) / plain;
    const double gptq = loss(choose_gptq(input).codes) / plain;
    const double plus = loss(choose_gptq_plus(input).codes) / plain;
    input.options.refit_scales = false;
    const double descent = loss(choose_gptq_plus(input).codes) / plain;
    input.options.descent_passes = 0;
    const double ranges = loss(choose_gptq_plus(input).codes) / plain;
    EXPECT_LT(nearest, want.nearest) << want.scheme;
    EXPECT_LT(gptq, want.gptq) << want.scheme;
    EXPECT_LT(ranges, want.ranges) << want.scheme;
    EXPECT_LT(plus, want.plus) << want.scheme;
    EXPECT_TRUE(plus < descent && descent < ranges && ranges < gptq && gptq < nearest)
        << want.scheme << ": " << plus << ' ' << descent << ' ' << ranges << ' ' << gptq << ' '
        << nearest;
  }
}

TEST(GptqPlus, CodesAndScalesDoNotDependOnTheNumberOfThreads) {
  const SyntheticLayer layer = synthetic_layer(300, 200, 800);
  ChosenCodes want;
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    MethodInput input = input_of(layer, "int3-g64");
    input.pool = &pool;
    const ChosenCodes found = choose_gptq_plus(input).codes;
    if (threads == 1) want = found;
    EXPECT_EQ(found.codes, want.codes) << threads;
    EXPECT_EQ(found.scales, want.scales) << threads;
  }
}

TEST(GptqPlus, TheScaleOfTheHessianDoesNotMatter) {
  const SyntheticLayer layer = synthetic_layer(20, 150, 600);
  SyntheticLayer scaled = layer;
  for (double& value : scaled.statistics.hessian) value *= 0x1p-90;
  for (double& value : scaled.statistics.square_sum) value *= 0x1p-90;
  const ChosenCodes want = choose_gptq_plus(input_of(layer, "int4-g32")).codes;
  const ChosenCodes found = choose_gptq_plus(input_of(scaled, "int4-g32")).codes;
  EXPECT_EQ(found.codes, want.codes);
  EXPECT_EQ(found.scales, want.scales);
}

// Codes, ranges and H of a small layer from which a descent starts.
struct Start {
  SyntheticLayer layer = synthetic_layer(24, 150, 600);
  ThreadPool pool{2};
  MethodInput input;
  Ranges ranges;
  Hessian hessian;
  std::vector<std::int16_t> codes;

  explicit Start(const char* scheme) {
    input = input_of(layer, scheme);
    ranges = plain_ranges(input);
    hessian = prepare_hessian(input, 0, pool);
    codes = nearest_codes(input, ranges).codes;
  }
  double loss() const {
    return proxy_loss(layer, with_codes(ranges, codes), input.scheme, layer.statistics.hessian);
  }
};

// For each code of a row, the change of the row's loss d H d^T if the code changes by one, relative
// to the loss s^2 H_jj of this step alone: 1 - 2 g_j / (s H_jj) for +1, 1 + 2 g_j / (s H_jj) for
// -1, with g = H d. Steps out of range are omitted.
std::vector<double> changes_by_single_steps(const Start& start, std::int64_t row) {
  const std::int64_t columns = start.layer.columns;
  const std::vector<double>& h = start.layer.statistics.hessian;
  std::vector<double> changes;
  for (std::int64_t j = 0; j < columns; ++j) {
    double gradient = 0;
    for (std::int64_t k = 0; k < columns; ++k) {
      const std::size_t range = start.ranges.index(row, k);
      const auto i = at(row * columns + k);
      const double d = static_cast<double>(start.layer.weight[i]) -
                       static_cast<double>(start.ranges.scales[range]) *
                           (start.codes[i] - start.ranges.zero(range));
      gradient += h[at(j * columns + k)] * d;
    }
    const auto scale = static_cast<double>(start.ranges.scales[start.ranges.index(row, j)]);
    const int code = start.codes[at(row * columns + j)];
    const double share = 2 * gradient / (scale * h[at(j * columns + j)]);
    if (code < start.ranges.limits.high) changes.push_back(1 - share);
    if (code > start.ranges.limits.low) changes.push_back(1 + share);
  }
  return changes;
}

TEST(Descent, EveryPassLowersTheLossUntilNoMoveHelps) {
  for (const char* scheme : {"int4-g32", "uint2-g64", "int8"}) {
    Start start(scheme);
    double before = start.loss();
    int passes = 0;
    while (descend(start.input, start.ranges, start.hessian, 1, start.codes, start.pool) > 0) {
      const double now = start.loss();
      ASSERT_LT(now, before) << scheme << ", pass " << passes;
      before = now;
      ASSERT_LT(++passes, 100);
    }
    EXPECT_GT(passes, 0);
    // At the end, no step of one in a single code may lower the loss.
    for (std::int64_t row = 0; row < 5; ++row) {
      for (const double change : changes_by_single_steps(start, row)) ASSERT_GT(change, -0.01);
    }
  }
}

TEST(Descent, FromNearestCodesItComesCloseToGptq) {
  Start start("int4-g32");
  const double nearest = start.loss();
  descend(start.input, start.ranges, start.hessian, 4, start.codes, start.pool);
  EXPECT_LT(start.loss(), 0.3 * nearest);
}

TEST(Refit, NeverRaisesTheLoss) {
  for (const char* scheme : kLayerSchemes) {
    Start start(scheme);
    const double before = start.loss();
    const std::int64_t taken =
        refit_scales(start.input, start.codes, start.hessian, start.ranges, start.pool);
    if (start.input.scheme.scaling == Scaling::tensor) {
      EXPECT_EQ(taken, 0);
      EXPECT_EQ(start.loss(), before);
      continue;
    }
    EXPECT_GT(taken, 0) << scheme;
    EXPECT_LT(start.loss(), before) << scheme;
    const std::int64_t again =
        refit_scales(start.input, start.codes, start.hessian, start.ranges, start.pool);
    EXPECT_LT(again, taken) << scheme;  // hardly any row gains from the same step twice
  }
}

TEST(Refit, ARowScaleIsTheClosedFormOptimum) {
  Start start("int8");
  refit_scales(start.input, start.codes, start.hessian, start.ranges, start.pool);
  const std::int64_t columns = start.layer.columns;
  const std::vector<double>& h = start.layer.statistics.hessian;
  for (std::int64_t row = 0; row < 3; ++row) {
    double cw = 0, cc = 0;
    for (std::int64_t i = 0; i < columns; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        const double ch = start.codes[at(row * columns + i)] * h[at(i * columns + j)];
        cw += ch * static_cast<double>(start.layer.weight[at(row * columns + j)]);
        cc += ch * start.codes[at(row * columns + j)];
      }
    }
    EXPECT_NEAR(static_cast<double>(start.ranges.scales[at(row)]) / (cw / cc), 1.0, 1e-5) << row;
  }
}

}  // namespace
}  // namespace leq
