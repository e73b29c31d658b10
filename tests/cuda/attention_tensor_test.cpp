// Attention on tensor cores, on the emulator: near double for heads, groups, types, windows, runs
// and places of the largest score, and to the bit the same however rows are batched.
#include <gtest/gtest.h>

#include "attention_case.h"
#include "cuda/sim/emulator.h"

namespace leq::LEQ_GPU {
namespace {

// Weights are rounded to f16, by at most 2^-11 of each, so an output is off by at most 2^-11 of the
// weights' mean of |v|, or of what codes lie apart from their middle. A quarter more for sums in
// f32, exp2, and scores whose f32 sums differ.
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
       {simt::Schedule{}, simt::Schedule{9, simt::CopyLands::at_issue},
        simt::Schedule{4, simt::CopyLands::at_wait}}) {
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

// Chunks of a run, whole runs, and last rows, as generation feeds them: all alone.
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

INSTANTIATE_TEST_SUITE_P(
    LargestScore, TensorAttention,
    testing::Values(AttentionCase{kF16, kF16, 4, 1, 64, 0, {{1200, 1}, {1190, 20}}, 3},
                    AttentionCase{kInt8, kInt8, 4, 1, 64, 0, {{1200, 1}, {1190, 20}}, 700},
                    AttentionCase{kF16, kF16, 4, 1, 64, 0, {{1200, 1}, {1190, 20}}, 1189}));

// A window that begins at every place in a page: 64 sequences, one position apart.
AttentionCase every_start(int window, int position) {
  AttentionCase c = {kInt8, kInt8, 2, 1, 16, window, {}, -1};
  for (int i = 0; i < 64; ++i) c.runs.push_back({position + i, 1});
  return c;
}
// Within a span, from the end of one into the next, and two spans before the newest key.
INSTANTIATE_TEST_SUITE_P(Window, TensorAttention,
                         testing::Values(every_start(70, 500), every_start(70, 548),
                                         every_start(600, 1080)));

// Many rows are not cut into blocks for spans: two spans in one block, and in two.
TEST(TensorAttentionSpans, JoinTheSameInOneBlockAndInMany) {
  const AttentionData data({kInt8, kInt8, 32, 8, 16, 100, {{450, 70}}});
  const auto all = data.run(false);
  const auto few = data.run({{0, 0, 60}}, false);
  ASSERT_EQ(few, std::vector<float>(all.begin(), all.begin() + std::ssize(few)));
}

std::uint64_t launches() {
  std::uint64_t count = 0;
  for (const auto& [kernel, times] : simt::launch_counts()) count += times;
  return count;
}

// Rows whose records are too many for scratch take turns, and get what they get alone. Windows keep
// the work small: what counts is how many spans the longest row could have.
void expect_turns(const AttentionData& data, const std::vector<AttentionPart>& parts, bool exact) {
  const std::uint64_t start = launches() + 1;  // one writes the inputs
  const auto all = data.run(parts, exact);
  const std::uint64_t of_all = launches() - start;
  auto from = all.begin();
  for (const AttentionPart& part : parts) {
    const std::uint64_t before = launches() + 1;
    const auto alone = data.run({part}, exact);
    EXPECT_EQ(of_all, 2 * (launches() - before));
    ASSERT_EQ(alone, std::vector<float>(from, from + std::ssize(alone))) << "run " << part.run;
    from += std::ssize(alone);
  }
}

TEST(TensorAttentionTurns, ChangeNoNumber) {
  constexpr int kLong = 64 * kSpanTokens + 200;
  // Of 1,056 heads two rows are all that spans are made of, and one is all that scratch has room
  // for.
  const AttentionData rows({kF16, kF16, 1056, 1, 16, 600, {{kLong, 1}, {kLong - 5000, 1}}});
  const std::vector<AttentionPart> both = {{0, 0, 1}, {1, 0, 1}};
  expect_turns(rows, both, false);
  expect_turns(rows, both, true);
  // A prompt's, four rows a block and the last block not full.
  const AttentionData chunk({kF16, kF16, 32, 1, 16, 600, {{kLong, 66}}});
  const std::uint64_t before = launches() + 1;
  const auto all = chunk.run(false);
  EXPECT_EQ(launches() - before, 2u);
  for (const AttentionPart& part : {AttentionPart{0, 0, 30}, {0, 30, 36}, {0, 65, 1}}) {
    const auto alone = chunk.run({part}, false);
    const auto from = all.begin() + part.first_row * chunk.out_width();
    ASSERT_EQ(alone, std::vector<float>(from, from + std::ssize(alone))) << part.first_row;
  }
}

TEST(TensorAttentionTurns, BoundScratch) {
  const auto bytes = [](std::int64_t tokens, std::int64_t context) {
    return attention_scratch_bytes(tokens, 32, 32, 128, context);
  };
  EXPECT_EQ(bytes(512, 1 << 15), std::size_t{66 * 32 * 64 * 130 * 4});
  EXPECT_EQ(bytes(512, 1 << 17), bytes(512, 1 << 15));
  EXPECT_EQ(bytes(1, 1 << 17), std::size_t{32 * 256 * 130 * 4});
  for (std::int64_t context = 512; context < 1 << 18; context += 512) {
    EXPECT_LE(bytes(512, context), bytes(512, context + 512)) << context;
  }
  // Where not even one row fits into the bound, it has what it needs.
  EXPECT_EQ(bytes(512, 1 << 22), bytes(1, 1 << 22));
}

}  // namespace
}  // namespace leq::LEQ_GPU
