// Exact attention on the emulator: bit-identical to the order of docs/numerics.md, and close to
// double, for heads, types, windows, runs and schedules.
#include <gtest/gtest.h>

#include "attention_case.h"
#include "cuda/sim/emulator.h"

namespace leq::LEQ_GPU {
namespace {

// f32 sums of up to 2,000 products of numbers of size 1; int8 codes and minima almost cancel.
constexpr double kTolerance = 1e-5;

constexpr KvType kF32 = KvType::f32, kF16 = KvType::f16, kInt8 = KvType::int8;

class AttentionTest : public testing::TestWithParam<AttentionCase> {
 protected:
  ~AttentionTest() override { simt::schedule() = {}; }
};

TEST_P(AttentionTest, EqualsTheWrittenOrderUnderAnySchedule) {
  const AttentionData data(GetParam());
  const auto want = data.ordered();
  const auto close = data.in_double();
  for (const simt::Schedule& schedule :
       {simt::Schedule{}, simt::Schedule{9, simt::CopyArrival::at_issue}}) {
    simt::schedule() = schedule;
    const auto found = data.run(true);
    ASSERT_EQ(found.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(found[i], want[i]) << "number " << i;
      ASSERT_NEAR(found[i], close.out[i], kTolerance * (1 + std::abs(close.out[i])));
    }
  }
}

// A batch with one token of each of several sequences.
INSTANTIATE_TEST_SUITE_P(
    Decode, AttentionTest,
    testing::Values(AttentionCase{kF16, kF16, 4, 4, 64, 0, {{0, 1}, {63, 1}, {64, 1}, {300, 1}}},
                    AttentionCase{kF32, kF32, 8, 2, 80, 0, {{511, 1}, {512, 1}}},
                    AttentionCase{kInt8, kInt8, 8, 2, 128, 0, {{1100, 1}, {17, 1}}},
                    AttentionCase{kInt8, kF16, 5, 1, 96, 0, {{700, 1}}},
                    AttentionCase{kF16, kInt8, 10, 2, 128, 600, {{1400, 1}, {599, 1}, {600, 1}}},
                    AttentionCase{kF16, kF16, 3, 1, 256, 0, {{530, 1}}},
                    AttentionCase{kF32, kInt8, 2, 2, 36, 0, {{90, 1}}},
                    AttentionCase{kF16, kF16, 2, 1, 10, 0, {{90, 1}}},
                    AttentionCase{kF32, kF16, 20, 1, 16, 0, {{70, 1}}},
                    AttentionCase{kF32, kF32, 1, 1, 300, 0, {{70, 1}}}));

// With this many rows and heads, no span gets its own block. One case is small, for sanitizers.
INSTANTIATE_TEST_SUITE_P(Chunk, AttentionTest,
                         testing::Values(AttentionCase{kInt8, kF16, 8, 4, 16, 0, {{0, 67}}}));
INSTANTIATE_TEST_SUITE_P(
    Prefill, AttentionTest,
    testing::Values(AttentionCase{kF16, kF16, 4, 4, 64, 0, {{0, 70}}},
                    AttentionCase{kF32, kF32, 8, 8, 24, 0, {{500, 37}}},
                    AttentionCase{kInt8, kInt8, 40, 8, 32, 0, {{490, 40}}},
                    AttentionCase{kInt8, kF16, 16, 4, 48, 100, {{470, 70}}},
                    AttentionCase{kF16, kInt8, 8, 8, 80, 30, {{0, 33}, {600, 5}, {64, 1}}},
                    AttentionCase{kF16, kF16, 4, 4, 256, 0, {{30, 66}}},
                    AttentionCase{kF16, kF16, 266, 266, 4, 0, {{520, 1}}}));

// Whole texts whose rows see each other, within one span and over several, split or not.
constexpr AttentionCase both_ways(AttentionCase c) {
  c.both_ways = true;
  return c;
}
INSTANTIATE_TEST_SUITE_P(
    BothWays, AttentionTest,
    testing::Values(both_ways({kF32, kF32, 4, 2, 32, 0, {{0, 70}, {0, 1}, {0, 9}}}),
                    both_ways({kF16, kF16, 3, 1, 24, 20, {{0, 90}, {0, 33}}}),
                    both_ways({kInt8, kInt8, 1, 1, 16, 0, {{0, 530}}}),
                    both_ways({kF16, kF16, 1, 1, 16, 300, {{0, 1100}}})));

// Creates 64 sequences of growing length, so that windows begin at every position of a page.
AttentionCase every_start(int window, int position) {
  AttentionCase c = {kInt8, kF16, 2, 1, 16, window, {}, -1};
  for (int i = 0; i < 64; ++i) c.runs.push_back({position + i, 1});
  return c;
}
// Windows begin within a span, on both sides of its end, and two spans before the newest key.
INSTANTIATE_TEST_SUITE_P(Window, AttentionTest,
                         testing::Values(every_start(70, 500), every_start(70, 548),
                                         every_start(600, 1080)));

}  // namespace
}  // namespace leq::LEQ_GPU
