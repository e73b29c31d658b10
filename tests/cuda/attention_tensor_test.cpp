// Attention on tensor cores, on the emulator: it must be close to double for all heads, groups,
// types, windows, runs and positions of the largest score, and bit-identical for any batching.
#include <gtest/gtest.h>

#include "attention_case.h"
#include "cuda/sim/emulator.h"
#include "hopper_device.h"

namespace leq::LEQ_GPU {
namespace {

// Rounding weights to f16 changes each by at most 2^-11, so an output is off by at most 2^-11 of
// the weighted mean of |v|, or of the codes' distance from their middle. A quarter more is allowed
// for sums in f32, exp2, and scores whose f32 sums differ.
constexpr double kTolerance = 1.25 / 2048;

constexpr KvType kF16 = KvType::f16, kInt8 = KvType::int8;

class TensorAttention : public testing::TestWithParam<AttentionCase> {
 protected:
  ~TensorAttention() override { simt::schedule() = {}; }
};

TEST_P(TensorAttention, IsNearDoubleUnderAnySchedule) {
  const AttentionData data(GetParam());
  const auto near = data.in_double_of_halves();
  std::vector<float> before;
  for (const simt::Schedule& schedule :
       {simt::Schedule{}, simt::Schedule{9, simt::CopyArrival::at_issue},
        simt::Schedule{4, simt::CopyArrival::at_wait}}) {
    simt::schedule() = schedule;
    const auto found = data.run(false);
    ASSERT_EQ(found.size(), near.out.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], near.out[i], kTolerance * near.size[i]) << "number " << i;
    }
    if (before.empty()) before = found;
    ASSERT_EQ(found, before);
  }
}

// Rows are run as chunks of a run, as whole runs, and as only the last rows, as in generation.
TEST_P(TensorAttention, RowsDependOnTheirSequenceAlone) {
  const AttentionCase& c = GetParam();
  const AttentionData data(c);
  const auto all = data.run(false);
  for (int i = 0; i < static_cast<int>(c.runs.size()); ++i) {
    const int rows = c.runs[static_cast<std::size_t>(i)].rows;
    std::vector<AttentionPart> parts = {{i, 0, rows}, {i, rows - 1, 1}};
    if (rows > 5) parts.insert(parts.end(), {{i, 0, 1}, {i, rows / 3, 3}, {i, rows / 2, rows / 2}});
    for (const AttentionPart& part : parts) {
      const auto alone = data.run({part}, false);
      const auto from = all.begin() + (data.row_of(i) + part.first_row) * data.out_width();
      ASSERT_EQ(alone, std::vector<float>(from, from + std::ssize(alone)))
          << "run " << i << ", rows " << part.first_row << " + " << part.rows;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Generation, TensorAttention,
    testing::Values(AttentionCase{kF16, kF16, 4, 4, 64, 0, {{0, 1}, {63, 1}, {64, 1}, {300, 1}}},
                    AttentionCase{kInt8, kInt8, 8, 2, 128, 0, {{1100, 1}, {17, 1}}},
                    AttentionCase{kInt8, kInt8, 5, 1, 96, 0, {{700, 1}}},
                    AttentionCase{kF16, kF16, 5, 1, 128, 600, {{1400, 1}, {599, 1}, {600, 1}}},
                    AttentionCase{kF16, kF16, 7, 1, 80, 0, {{530, 1}}},
                    AttentionCase{kInt8, kInt8, 8, 1, 256, 0, {{600, 1}}},
                    AttentionCase{kF16, kF16, 3, 1, 256, 0, {{130, 2}}},
                    AttentionCase{kF16, kF16, 20, 1, 16, 0, {{70, 1}}}));

INSTANTIATE_TEST_SUITE_P(
    Prompts, TensorAttention,
    testing::Values(AttentionCase{kF16, kF16, 2, 2, 64, 0, {{0, 150}}},
                    AttentionCase{kInt8, kInt8, 8, 2, 32, 0, {{450, 70}}},
                    AttentionCase{kInt8, kInt8, 8, 2, 48, 100, {{470, 70}}},
                    AttentionCase{kF16, kF16, 2, 2, 80, 30, {{0, 70}, {600, 5}, {64, 1}}},
                    AttentionCase{kInt8, kInt8, 7, 1, 96, 0, {{500, 20}}},
                    AttentionCase{kF16, kF16, 5, 1, 128, 0, {{30, 31}}},
                    AttentionCase{kInt8, kInt8, 5, 1, 128, 0, {{30, 31}}},
                    AttentionCase{kF16, kF16, 1, 1, 256, 0, {{30, 40}}},
                    AttentionCase{kInt8, kInt8, 1, 1, 256, 0, {{30, 66}}}));

// Whole texts whose rows see each other, within one span and over several.
class TensorAttentionBothWays : public TensorAttention {};

TEST_P(TensorAttentionBothWays, IsNearDouble) {
  AttentionCase c = GetParam();
  c.both_ways = true;
  const AttentionData data(c);
  const auto near = data.in_double_of_halves();
  const auto found = data.run(false);
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], near.out[i], kTolerance * near.size[i]) << "number " << i;
  }
  for (int i = 0; i < static_cast<int>(c.runs.size()); ++i) {
    const auto alone = data.run({{i, 0, c.runs[static_cast<std::size_t>(i)].rows}}, false);
    const auto from = found.begin() + data.row_of(i) * data.out_width();
    ASSERT_EQ(alone, std::vector<float>(from, from + std::ssize(alone))) << "run " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    WholeTexts, TensorAttentionBothWays,
    testing::Values(AttentionCase{kF16, kF16, 4, 2, 64, 0, {{0, 150}, {0, 1}, {0, 17}}},
                    AttentionCase{kF16, kF16, 3, 1, 256, 40, {{0, 130}, {0, 9}}},
                    AttentionCase{kInt8, kInt8, 2, 1, 32, 0, {{0, 600}}},
                    AttentionCase{kF16, kF16, 1, 1, 16, 300, {{0, 1100}}}));

INSTANTIATE_TEST_SUITE_P(
    LargestScore, TensorAttention,
    testing::Values(AttentionCase{kF16, kF16, 4, 1, 64, 0, {{1200, 1}, {1190, 20}}, 3},
                    AttentionCase{kInt8, kInt8, 4, 1, 64, 0, {{1200, 1}, {1190, 20}}, 700},
                    AttentionCase{kF16, kF16, 4, 1, 64, 0, {{1200, 1}, {1190, 20}}, 1189}));

// With few blocks more tiles are in flight, if the device has enough shared memory. That the cases
// launch every such kernel is checked after the last test (sim/launch_table.cpp).
class FewBlocks : public testing::TestWithParam<AttentionCase> {
 protected:
  ~FewBlocks() override { simt::schedule() = {}; }
};

TEST_P(FewBlocks, ChangeNoNumber) {
  const AttentionData data(GetParam());
  const auto want = data.run(false);
  const HopperDevice hopper;
  for (const auto arrival : {simt::CopyArrival::at_issue, simt::CopyArrival::at_wait}) {
    simt::schedule() = simt::Schedule{3, arrival};
    EXPECT_EQ(data.run(false), want);
  }
}

INSTANTIATE_TEST_SUITE_P(OneSequence, FewBlocks,
                         testing::Values(AttentionCase{kF16, kF16, 4, 1, 64, 0, {{1200, 1}}},
                                         AttentionCase{kF16, kF16, 1, 1, 128, 0, {{1023, 1}}},
                                         AttentionCase{kF16, kF16, 5, 1, 128, 700, {{1400, 1}}},
                                         AttentionCase{kInt8, kInt8, 8, 1, 64, 0, {{512, 1}}},
                                         AttentionCase{kInt8, kInt8, 4, 1, 128, 0, {{1500, 1}}},
                                         AttentionCase{kInt8, kInt8, 8, 1, 128, 90, {{30, 2}}},
                                         AttentionCase{kInt8, kInt8, 8, 1, 256, 0, {{600, 1}}}));

// Creates 64 sequences of growing length, so that windows begin at every position of a page.
AttentionCase every_start(int window, int position) {
  AttentionCase c = {kInt8, kInt8, 2, 1, 16, window, {}, -1};
  for (int i = 0; i < 64; ++i) c.runs.push_back({position + i, 1});
  return c;
}
// Windows begin within a span, on both sides of its end, and two spans before the newest key.
INSTANTIATE_TEST_SUITE_P(Window, TensorAttention,
                         testing::Values(every_start(70, 500), every_start(70, 548),
                                         every_start(600, 1080)));

// With many rows, one block combines two spans; with fewer rows, each span has its own block.
TEST(TensorAttentionSpans, JoinTheSameInOneBlockAndInMany) {
  const AttentionData data({kInt8, kInt8, 32, 8, 16, 100, {{450, 70}}});
  const auto all = data.run(false);
  const auto few = data.run({{0, 0, 60}}, false);
  ASSERT_EQ(few, std::vector<float>(all.begin(), all.begin() + std::ssize(few)));
}

// If the scratch has too few records for all rows, rows are processed in turns, with equal results.
class AttentionRowsInTurn : public testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionRowsInTurn, ChangeNoNumber) {
  AttentionCase c = GetParam();
  const AttentionData at_once(c);
  for (const bool exact : {false, true}) {
    const auto want = at_once.run(exact);
    for (const int rows : {1, 3, 10, 40}) {
      if (rows >= c.rows()) break;
      c.most_records = std::int64_t{rows} * c.heads * spans_of(c.end());
      EXPECT_EQ(AttentionData(c).run(exact), want) << rows << " rows at once, exact " << exact;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Generation, AttentionRowsInTurn,
    testing::Values(AttentionCase{kF16, kF16, 4, 4, 64, 0, {{1100, 1}, {17, 1}, {600, 1}}},
                    AttentionCase{kInt8, kInt8, 8, 2, 128, 600, {{1400, 1}, {40, 1}, {700, 1}}},
                    // Blocks of several rows; the last block of a run is not full.
                    AttentionCase{kInt8, kInt8, 4, 1, 64, 0, {{600, 3}, {1030, 5}, {510, 4}}}));
INSTANTIATE_TEST_SUITE_P(Prompts, AttentionRowsInTurn,
                         testing::Values(AttentionCase{kF16, kF16, 4, 1, 64, 0, {{480, 70}}},
                                         AttentionCase{kInt8, kInt8, 2, 1, 96, 300, {{500, 66}}}));
INSTANTIATE_TEST_SUITE_P(
    Mixed, AttentionRowsInTurn,
    testing::Values(
        AttentionCase{kF16, kF16, 4, 2, 32, 0, {{600, 1}, {500, 20}, {1100, 1}, {700, 1}}},
        AttentionCase{kInt8, kInt8, 4, 1, 64, 0, {{510, 6}, {600, 1}, {520, 1}, {700, 3}}}));

TEST(AttentionScratch, IsBounded) {
  const auto bytes = [](std::int64_t tokens, std::int64_t context) {
    return attention_scratch_bytes(tokens, 32, 32, 128, context);
  };
  EXPECT_EQ(bytes(512, 1 << 15), std::size_t{66 * 32 * 64 * 130 * 4});
  EXPECT_EQ(bytes(512, 1 << 17), bytes(512, 1 << 15));
  EXPECT_EQ(bytes(1, 1 << 17), std::size_t{32 * 256 * 130 * 4});
  for (std::int64_t context = 512; context < 1 << 18; context += 512) {
    EXPECT_LE(bytes(512, context), bytes(512, context + 512)) << context;
  }
  // If the limit is too small for even one row, the scratch is made large enough for one row.
  EXPECT_EQ(bytes(512, 1 << 22), bytes(1, 1 << 22));
}

}  // namespace
}  // namespace leq::LEQ_GPU
