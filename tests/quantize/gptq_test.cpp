#include "quantize/methods/gptq.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "errors.h"
#include "quantize/methods/second_order.h"
#include "quantize/synthetic_layer.h"

namespace leq {
namespace {

std::vector<double> damped(const InputStatistics& statistics, double damping) {
  std::vector<double> h = statistics.hessian;
  for (std::int64_t k = 0; k < statistics.columns; ++k)
    h[at(k * statistics.columns + k)] *= 1 + damping;
  return h;
}

// The inverse of a positive definite matrix by Gauss-Jordan elimination.
std::vector<double> inverse_of(std::vector<double> a, std::int64_t n) {
  std::vector<double> inverse(at(n * n));
  for (std::int64_t i = 0; i < n; ++i) inverse[at(i * n + i)] = 1;
  for (std::int64_t i = 0; i < n; ++i) {
    const double pivot = a[at(i * n + i)];
    for (std::int64_t j = 0; j < n; ++j) {
      a[at(i * n + j)] /= pivot;
      inverse[at(i * n + j)] /= pivot;
    }
    for (std::int64_t r = 0; r < n; ++r) {
      const double factor = a[at(r * n + i)];
      if (r == i || factor == 0) continue;
      for (std::int64_t j = 0; j < n; ++j) {
        a[at(r * n + j)] -= factor * a[at(i * n + j)];
        inverse[at(r * n + j)] -= factor * inverse[at(i * n + j)];
      }
    }
  }
  return inverse;
}

constexpr double kF32Sums = 1e-4;    // of sums over 150 products in f32
constexpr double kCloseCall = 1e-3;  // of a code: f32 may round a target to either neighbour

struct NaiveCodes {
  std::vector<std::int16_t> codes;  // [N][K]
  // Whether no target of the row has been a close call up to here: each changes the rest of a row.
  std::vector<bool> certain;
};

// GPTQ as in the paper, without blocks, in double: after column i is rounded, the following columns
// are updated by w_j -= e H^-1_ij, e = (w_i - q_i) / H^-1_ii, and column i is removed from H^-1.
NaiveCodes naive_gptq(const MethodInput& input, const Ranges& ranges) {
  const std::int64_t n = input.columns;
  const std::vector<double> h = damped(*input.statistics, input.options.damping);
  std::vector<std::int64_t> order(at(n));
  std::iota(order.begin(), order.end(), 0);
  if (input.options.act_order) {
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return input.statistics->hessian[at(a * n + a)] > input.statistics->hessian[at(b * n + b)];
    });
  }
  std::vector<double> inverse = inverse_of(h, n), w(input.weight.begin(), input.weight.end());
  std::vector<std::int16_t> codes(w.size());
  std::vector<bool> certain(w.size()), row_is_certain(at(input.rows), true);
  for (std::int64_t step = 0; step < n; ++step) {
    const std::int64_t i = order[at(step)];
    for (std::int64_t row = 0; row < input.rows; ++row) {
      const std::size_t range = ranges.index(row, i);
      const int zero = ranges.zero(range);
      const auto target = static_cast<float>(w[at(row * n + i)]);
      const float quotient = target / ranges.divisors[range];
      const double halfway = std::fabs(static_cast<double>(quotient - std::floor(quotient)) - 0.5);
      if (halfway < kCloseCall) row_is_certain[at(row)] = false;
      certain[at(row * n + i)] = row_is_certain[at(row)];
      const double code = std::clamp(static_cast<double>(std::nearbyintf(quotient)),
                                     static_cast<double>(ranges.limits.low - zero),
                                     static_cast<double>(ranges.limits.high - zero));
      codes[at(row * n + i)] = static_cast<std::int16_t>(code + zero);
      const double error = (w[at(row * n + i)] - static_cast<double>(ranges.scales[range]) * code) /
                           inverse[at(i * n + i)];
      for (std::int64_t next = step + 1; next < n; ++next) {
        const std::int64_t j = order[at(next)];
        w[at(row * n + j)] -= error * inverse[at(i * n + j)];
      }
    }
    const std::vector<double> column(inverse.begin() + i * n, inverse.begin() + (i + 1) * n);
    for (std::int64_t r = 0; r < n; ++r) {
      for (std::int64_t c = 0; c < n; ++c)
        inverse[at(r * n + c)] -= column[at(r)] * column[at(c)] / column[at(i)];
    }
  }
  return {std::move(codes), std::move(certain)};
}

class Gptq : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Schemes, Gptq, testing::ValuesIn(kLayerSchemes), test::named_by_text);

TEST_P(Gptq, LossEqualsTheTraceIdentity) {
  const SyntheticLayer layer = synthetic_layer(20, 150, 600);
  for (const bool act_order : {true, false}) {
    MethodInput input = input_of(layer, GetParam());
    input.options.act_order = act_order;
    ThreadPool pool(2);
    const Ranges ranges = plain_ranges(input);
    const auto feedback = factor_hessian(input, pool);
    ASSERT_TRUE(feedback);
    const FeedbackCodes found = choose_with_feedback(input, ranges, *feedback, pool);
    const double trace = proxy_loss(layer, with_codes(ranges, found.codes), input.scheme,
                                    damped(layer.statistics, input.options.damping));
    const double sum = std::accumulate(found.losses.begin(), found.losses.end(), 0.0);
    EXPECT_NEAR(sum / trace, 1.0, kF32Sums) << act_order;
  }
}

TEST_P(Gptq, BlocksGiveTheCodesOfOneColumnAtATime) {
  const SyntheticLayer layer = synthetic_layer(12, 170, 700);  // two blocks, the second one partial
  for (const bool act_order : {true, false}) {
    MethodInput input = input_of(layer, GetParam());
    input.options.act_order = act_order;
    ThreadPool pool(2);
    const Ranges ranges = plain_ranges(input);
    const NaiveCodes want = naive_gptq(input, ranges);
    const auto feedback = factor_hessian(input, pool);
    ASSERT_TRUE(feedback);
    const auto codes = choose_with_feedback(input, ranges, *feedback, pool).codes;
    std::int64_t certain = 0;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      if (!want.certain[i]) continue;
      EXPECT_EQ(codes[i], want.codes[i]) << act_order << ' ' << i;
      ++certain;
    }
    EXPECT_GT(certain, input.rows * input.columns / 2);
    const auto loss = [&](const std::vector<std::int16_t>& of) {
      return proxy_loss(layer, with_codes(ranges, of), input.scheme, layer.statistics.hessian);
    };
    EXPECT_NEAR(loss(codes) / loss(want.codes), 1.0, 0.01) << act_order;
  }
}

// Creates a layer whose inputs are uncorrelated.
SyntheticLayer diagonal_layer() {
  SyntheticLayer layer = synthetic_layer(30, 140, 10);
  std::vector<double> h(at(140 * 140));
  for (std::int64_t k = 0; k < 140; ++k) h[at(k * 140 + k)] = 1 + static_cast<double>(k * 37 % 50);
  layer.statistics = statistics_of(h, 140, 10);
  return layer;
}

TEST_P(Gptq, ADiagonalHessianFeedsNothingBack) {
  const SyntheticLayer layer = diagonal_layer();
  const MethodInput input = input_of(layer, GetParam());
  ThreadPool pool(2);
  const auto feedback = factor_hessian(input, pool);
  ASSERT_TRUE(feedback);
  for (const Ranges& ranges : {plain_ranges(input), weighted_ranges(input)}) {
    EXPECT_EQ(choose_with_feedback(input, ranges, *feedback, pool).codes,
              nearest_codes(input, ranges).codes);
  }
}

TEST_P(Gptq, ADiagonalHessianLeavesRtnAndTheNearestCodesOfPlainRanges) {
  const SyntheticLayer layer = diagonal_layer();
  const MethodInput input = input_of(layer, GetParam());
  const auto losses = [&](const ChosenCodes& codes) {
    return proxy_losses(layer, codes, input.scheme, layer.statistics.hessian);
  };
  const auto plain = losses(nearest_codes(input, plain_ranges(input)));
  const auto weighted = losses(nearest_codes(input, weighted_ranges(input)));
  const MethodResult found = choose_gptq(input);
  const auto loss = losses(found.codes);
  for (std::size_t row = 0; row < loss.size(); ++row) {
    EXPECT_NEAR(loss[row] / std::min(plain[row], weighted[row]), 1.0, 1e-4) << row;
  }
  EXPECT_EQ(found.note, "");
}

// One input is far larger than the others, uncorrelated with them, and its weights are small
// (smoothing would help). These weights are negligible next to the largest weight of their group,
// so plain ranges round them to 0, and no other column can compensate.
TEST(Gptq, LosesNoMoreThanRtnWhereALargeInputMeetsSmallWeights) {
  constexpr std::int64_t kLarge = 38;
  SyntheticLayer layer = synthetic_layer(40, 150, 600);
  for (std::int64_t row = 0; row < 40; ++row) layer.weight[at(row * 150 + kLarge)] /= 256;
  std::vector<double> h = layer.statistics.hessian;
  for (std::int64_t j = 0; j < 150; ++j) {
    if (j != kLarge) h[at(kLarge * 150 + j)] = h[at(j * 150 + kLarge)] = 0;
  }
  h[at(kLarge * 150 + kLarge)] *= 4096.0 * 4096.0;
  layer.statistics = statistics_of(h, 150, 600);
  for (const char* scheme : {"int4-g32", "uint4-g64", "int3-g64", "int2-g32"}) {
    const MethodInput input = input_of(layer, scheme);
    const auto loss = [&](const ChosenCodes& codes) {
      return proxy_loss(layer, codes, input.scheme, h);
    };
    ThreadPool pool(1);
    const Ranges plain = plain_ranges(input);
    const auto feedback = factor_hessian(input, pool);
    ASSERT_TRUE(feedback);
    const double fed_back =
        loss(with_codes(plain, choose_with_feedback(input, plain, *feedback, pool).codes));
    const double rtn = loss(nearest_codes(input, weighted_ranges(input)));
    EXPECT_GT(fed_back, 1.2 * rtn) << scheme;  // otherwise the test shows nothing
    EXPECT_LE(loss(choose_gptq(input).codes), rtn * (1 + 1e-6)) << scheme;
  }
}

TEST_P(Gptq, LosesLessThanTheNearestCodes) {
  const SyntheticLayer layer = synthetic_layer(40, 130, 520);
  const MethodInput input = input_of(layer, GetParam());
  const auto loss = [&](const ChosenCodes& codes) {
    return proxy_loss(layer, codes, input.scheme, layer.statistics.hessian);
  };
  const double nearest = loss(nearest_codes(input, plain_ranges(input)));
  EXPECT_LT(loss(choose_gptq(input).codes), 0.4 * nearest);
}

TEST_P(Gptq, CodesStayInTheirRange) {
  const SyntheticLayer layer = synthetic_layer(40, 130, 40);  // few tokens, so large corrections
  const MethodInput input = input_of(layer, GetParam());
  const CodeLimits limits = code_limits(input.scheme);
  const ChosenCodes found = choose_gptq(input).codes;
  const auto [low, high] = std::minmax_element(found.codes.begin(), found.codes.end());
  EXPECT_GE(*low, limits.low);
  EXPECT_LE(*high, limits.high);
}

TEST(Gptq, TheScaleOfTheHessianDoesNotMatter) {
  SyntheticLayer layer = synthetic_layer(20, 150, 600);
  const std::vector<std::int16_t> want = choose_gptq(input_of(layer, "int4-g32")).codes.codes;
  for (const double factor : {0x1p-90, 0x1p40}) {
    SyntheticLayer scaled = layer;
    for (double& value : scaled.statistics.hessian) value *= factor;
    EXPECT_EQ(choose_gptq(input_of(scaled, "int4-g32")).codes.codes, want) << factor;
  }
}

// Shrinking X^T X is the same as enlarging its diagonal.
TEST(Gptq, ShrinkageIsALargerDiagonal) {
  const SyntheticLayer layer = synthetic_layer(20, 150, 600);
  SyntheticLayer larger = layer;
  larger.statistics.hessian = damped(layer.statistics, 0.5);
  for (const auto choose : {choose_gptq, choose_gptq_plus}) {
    MethodInput shrunk = input_of(layer, "int4-g32"), plain = input_of(larger, "int4-g32");
    shrunk.options.damping = plain.options.damping = 0;
    shrunk.options.shrinkage = 0.5;
    const MethodResult found = choose(shrunk), want = choose(plain);
    EXPECT_EQ(found.codes.codes, want.codes.codes);
    EXPECT_EQ(found.codes.scales, want.codes.scales);
    EXPECT_NE(found.codes.codes, choose(input_of(layer, "int4-g32")).codes.codes);
  }
}

TEST(Gptq, ShrinkageIsLargeForFewTokens) {
  EXPECT_EQ(shrinkage_of(576, 0), 0);
  EXPECT_EQ(shrinkage_of(576, 100), 1);
  EXPECT_EQ(shrinkage_of(512, 4096), 0.5);
  EXPECT_EQ(shrinkage_of(256, 65536), 1.0 / 64);
}

TEST(Gptq, PermutedColumnsGetPermutedCodes) {
  const SyntheticLayer layer = synthetic_layer(20, 150, 600);
  const auto from = [](std::int64_t k) { return k * 47 % 150; };  // 47 and 150 are coprime
  SyntheticLayer moved = layer;
  for (std::int64_t k = 0; k < 150; ++k) {
    for (std::int64_t row = 0; row < 20; ++row)
      moved.weight[at(row * 150 + k)] = layer.weight[at(row * 150 + from(k))];
    for (std::int64_t j = 0; j < 150; ++j)
      moved.statistics.hessian[at(k * 150 + j)] =
          layer.statistics.hessian[at(from(k) * 150 + from(j))];
  }
  const ChosenCodes codes = choose_gptq(input_of(layer, "int8")).codes;
  const ChosenCodes found = choose_gptq(input_of(moved, "int8")).codes;
  EXPECT_EQ(found.scales, codes.scales);
  for (std::int64_t row = 0; row < 20; ++row) {
    for (std::int64_t k = 0; k < 150; ++k)
      ASSERT_EQ(found.codes[at(row * 150 + k)], codes.codes[at(row * 150 + from(k))])
          << row << ' ' << k;
  }
}

TEST(Gptq, ColumnsThatWereNeverSeenKeepTheNearestCodes) {
  SyntheticLayer layer = synthetic_layer(20, 150, 600);
  for (const std::int64_t dead : {0, 77, 149}) {
    for (std::int64_t j = 0; j < 150; ++j)
      layer.statistics.hessian[at(dead * 150 + j)] = layer.statistics.hessian[at(j * 150 + dead)] =
          0;
  }
  const MethodInput input = input_of(layer, "int4-g32");
  const MethodResult found = choose_gptq(input);
  const ChosenCodes nearest = nearest_codes(input, plain_ranges(input));
  EXPECT_EQ(found.note, "");
  for (std::int64_t row = 0; row < 20; ++row) {
    for (const std::int64_t dead : {0, 77, 149})
      EXPECT_EQ(found.codes.codes[at(row * 150 + dead)], nearest.codes[at(row * 150 + dead)]);
  }
}

TEST(Gptq, ASingularHessianWithoutDampingIsDampedWithANote) {
  const SyntheticLayer layer = synthetic_layer(20, 150, 60);  // fewer tokens than columns
  MethodInput input = input_of(layer, "int4-g32");
  input.options.damping = 0;
  const MethodResult found = choose_gptq(input);
  EXPECT_NE(found.note.find("damping raised from 0 to 0.01"), std::string::npos) << found.note;
  input.options.damping = 0.01;
  EXPECT_EQ(found.codes.codes, choose_gptq(input).codes.codes);
}

TEST(Gptq, AnIndefiniteHessianFallsBackToRtnWithANote) {
  SyntheticLayer layer = synthetic_layer(20, 150, 600);
  for (std::int64_t i = 0; i < 150; ++i) {
    for (std::int64_t j = 0; j < 150; ++j)
      layer.statistics.hessian[at(i * 150 + j)] = i == j ? 1 : -3;
  }
  const MethodInput input = input_of(layer, "int4-g32");
  const ChosenCodes rtn = require_method("rtn").choose(input).codes;
  for (const char* method : {"gptq", "gptq+"}) {
    const MethodResult found = require_method(method).choose(input);
    EXPECT_NE(found.note.find("rounded to nearest"), std::string::npos) << found.note;
    EXPECT_EQ(found.codes.codes, rtn.codes) << method;
    EXPECT_EQ(found.codes.scales, rtn.scales) << method;
  }
}

TEST(Gptq, SaysWhichLinearLacksAHessian) {
  SyntheticLayer layer = synthetic_layer(20, 150, 60);
  layer.statistics.hessian.clear();
  test::expect_error([&] { choose_gptq(input_of(layer, "int4-g32")); },
                     {"test: expected X^T X of 150 inputs"});
}

TEST(Gptq, CodesDoNotDependOnTheNumberOfThreads) {
  const SyntheticLayer layer = synthetic_layer(300, 200, 800);
  std::vector<std::int16_t> want;
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    MethodInput input = input_of(layer, "int3-g64");
    input.pool = &pool;
    const auto codes = choose_gptq(input).codes.codes;
    if (threads == 1) want = codes;
    EXPECT_EQ(codes, want) << threads;
  }
}

}  // namespace
}  // namespace leq
