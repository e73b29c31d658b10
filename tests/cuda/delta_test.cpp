// Gated DeltaNet compared with its formulas in double (backend/operations.h), for texts fed in
// steps of several sequences. The bits must not depend on how a text is split, except that prompts
// computed in chunks must be split at multiples of 64.
#include "cuda/kernels/delta/delta.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "cuda/kernels/launch.h"
#include "delta_text.h"

namespace leq::LEQ_GPU {
namespace {

class Delta : public testing::TestWithParam<DeltaCase> {};

void expect_formulas(const DeltaText& text, const std::vector<std::vector<float>>& found) {
  for (std::size_t s = 0; s < found.size(); ++s) {
    const std::vector<double> want = text.in_double(s);
    ASSERT_EQ(found[s].size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(found[s][i], want[i], kDeltaTolerance) << "sequence " << s << ", number " << i;
    }
  }
}

TEST_P(Delta, FollowsTheFormulasWhateverTheSteps) {
  DeltaText text(GetParam(), {11, 6});
  const auto at_once = text.run({{{0, 11}, {1, 6}}});
  expect_formulas(text, at_once);
  // Tests single tokens, steps shorter than the convolution, and one sequence twice in a step.
  const std::vector<DeltaStep> cut = {
      {{0, 1}}, {{0, 2}, {1, 2}}, {{1, 1}, {0, 3}, {1, 1}}, {{0, 1}, {1, 2}, {0, 4}}};
  EXPECT_EQ(text.run(cut), at_once);
}

// Whole chunks of 64 tokens use matrix products; the remaining tokens of a prompt do not.
TEST_P(Delta, PromptsOfAnyLengthFollowTheFormulas) {
  DeltaText text(GetParam(), {1, 3, 63, 64, 65, 200});
  expect_formulas(text, text.run({{{0, 1}, {1, 3}, {2, 63}, {3, 64}, {4, 65}, {5, 200}}}));
}

TEST_P(Delta, StepsThatEndAtMultiplesOf64ChangeNoBit) {
  DeltaText text(GetParam(), {200, 130});
  const auto whole = text.run({{{0, 200}, {1, 130}}});
  EXPECT_EQ(text.run({{{0, 64}}, {{1, 128}, {0, 64}}, {{0, 72}, {1, 2}}}), whole);
  EXPECT_EQ(text.run({{{1, 64}, {0, 128}}, {{1, 64}, {0, 64}, {1, 2}}, {{0, 1}}, {{0, 7}}}), whole);
}

TEST_P(Delta, OtherStepsFollowTheFormulasToo) {
  DeltaText text(GetParam(), {200});
  expect_formulas(text, text.run({{{0, 33}}, {{0, 140}}, {{0, 27}}}));
  expect_formulas(text, text.run({{{0, 100}, {0, 100}}}));
}

TEST_P(Delta, ExactPromptsAreTheRecurrence) {
  DeltaText text(GetParam(), {130});
  const std::vector<DeltaStep> singly(130, DeltaStep{{0, 1}});
  const auto recurrence = text.run(singly);
  EXPECT_EQ(text.run({{{0, 130}}}, true), recurrence);
  EXPECT_NE(text.run({{{0, 130}}}), recurrence) << "no chunk was computed as one";
}

INSTANTIATE_TEST_SUITE_P(Shapes, Delta,
                         testing::Values(DeltaCase{1, 2, 16, 16, 4}, DeltaCase{2, 2, 24, 40, 4},
                                         DeltaCase{1, 1, 128, 72, 2}, DeltaCase{2, 6, 8, 33, 3}));

// Short convolutions with their formulas in double; no bit depends on how a text is split.
TEST(ShortConv, FollowsTheFormulasWhateverTheSteps) {
  constexpr int kChannels = 133, kTaps = 4, kWidth = 3 * kChannels, kBefore = 12;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const auto numbers = [&](int count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = normal(random);
    return values;
  };
  const std::vector<int> lengths = {11, 6};
  const std::vector<std::vector<float>> texts = {numbers(11 * kWidth), numbers(6 * kWidth)};
  const std::vector<float> weights = numbers(kTaps * kChannels);
  const DeviceArray<float> conv(weights);
  const auto run = [&](const std::vector<DeltaStep>& steps) {
    constexpr std::size_t kNumbers = kBefore + (kTaps - 1) * kChannels;
    const DeviceArray<float> states(std::vector<float>(4 * kNumbers, NAN));
    std::vector<std::vector<float>> all(texts.size());
    each_step(
        texts.size(), steps,
        [&](std::size_t sequence, int which) {
          return states.data() + (2 * sequence + static_cast<std::size_t>(which)) * kNumbers;
        },
        [&](const DeltaStep& step, const std::vector<AttentionRun>& runs,
            const std::vector<std::int32_t>& row_runs) {
          std::vector<float> mixed;
          for (std::size_t i = 0; i < step.size(); ++i) {
            append(mixed, texts[static_cast<std::size_t>(step[i].sequence)], runs[i].first_position,
                   step[i].rows, kWidth);
          }
          const DeviceArray<AttentionRun> runs_there(runs);
          const DeviceArray<std::int32_t> row_runs_there(row_runs);
          const DeviceArray<float> mixed_there(mixed), out(row_runs.size() * kChannels);
          const DeviceArray<unsigned long long> fault(std::vector<unsigned long long>{kNoFault});
          ShortConvArguments a;
          a.mixed = {mixed_there.data(), kWidth};
          a.out = {out.data(), kChannels};
          a.batch.tokens = std::ssize(row_runs);
          a.batch.runs = runs_there.data();
          a.batch.run_count = static_cast<int>(runs.size());
          a.batch.row_runs = row_runs_there.data();
          a.channels = a.conv_stride = kChannels;
          a.taps = kTaps;
          a.conv = conv.data();
          a.state_at = kBefore * sizeof(float);
          a.fault = {fault.data(), 1};
          write_late({mixed_there.bytes()});
          launch_short_conv(a, test_stream());
          EXPECT_EQ(fault.host()[0], kNoFault);
          add_rows(step, kChannels, out.host(), all);
        });
    return all;
  };
  const auto found = run({{{0, 11}, {1, 6}}});
  for (std::size_t s = 0; s < texts.size(); ++s) {
    const auto in = [&](int part, int t, int c) {
      return double{texts[s][static_cast<std::size_t>(t * kWidth + part * kChannels + c)]};
    };
    for (int t = 0; t < lengths[s]; ++t) {
      for (int c = 0; c < kChannels; ++c) {
        double sum = 0;
        for (int back = 0; back < kTaps && back <= t; ++back) {
          const double tap = weights[static_cast<std::size_t>((kTaps - 1 - back) * kChannels + c)];
          sum += tap * in(0, t - back, c) * in(2, t - back, c);
        }
        ASSERT_NEAR(found[s][static_cast<std::size_t>(t * kChannels + c)], in(1, t, c) * sum, 1e-4);
      }
    }
  }
  EXPECT_EQ(run({{{0, 1}}, {{0, 2}, {1, 2}}, {{1, 1}, {0, 3}, {1, 1}}, {{0, 1}, {1, 2}, {0, 4}}}),
            found);
}

// Outputs are multiplied by sigmoid of the gates, which are in wider rows of another array.
TEST(GateOutputs, AreTimesSigmoidOfTheirGates) {
  constexpr int kTokens = 3, kWidth = 200, kOutStride = 208, kGateStride = 460, kGatesAt = 232;
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> outputs(kTokens * kOutStride), gates(kTokens * kGateStride);
  for (float& value : outputs) value = normal(random);
  for (float& value : gates) value = normal(random);
  const DeviceArray<float> out(outputs), rows(gates);
  launch_gate_outputs(
      {{out.data(), kOutStride}, {rows.data() + kGatesAt, kGateStride}, kTokens, kWidth},
      test_stream());
  const std::vector<float> found = out.host();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::size_t row = i / kOutStride, c = i % kOutStride;
    const double gate = c < kWidth ? sigmoid(gates[row * kGateStride + kGatesAt + c]) : 1;
    ASSERT_NEAR(found[i], outputs[i] * gate, 1e-5) << "row " << row << ", column " << c;
  }
}

}  // namespace
}  // namespace leq::LEQ_GPU
