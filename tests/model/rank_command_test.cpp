// Commands of the leader to other ranks are serialized and parsed; any other bytes are refused.
#include "model/ranks.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/error.h"

namespace leq {
namespace {

RankStep some_step(const std::vector<std::int32_t>& pages) {
  RankStep step;
  step.wanted = RankStep::Wanted::hidden;
  step.batch.tokens = {5, 6, 7};
  step.batch.outputs = {0, 2};
  step.positions = {63, 64, 0};
  step.copies = {-1, 0, 1};
  step.frames = {2, -1, 0};
  step.runs = {{.sequence = 4, .first_row = 0, .rows = 2, .first_position = 63, .pages = pages},
               {.sequence = 1, .first_row = 2, .rows = 1, .first_position = 0, .pages = pages}};
  step.states = {{FixedStates::kZeros, 3}, {5, 2}};
  return step;
}

TEST(RankCommand, AStepComesBackAsItWas) {
  const std::vector<std::int32_t> pages = {9, 3};
  const RankCommand command = decode_command(encode(some_step(pages)));
  const auto& step = std::get<RankStep>(command);
  const RankStep want = some_step(pages);
  EXPECT_EQ(step.wanted, want.wanted);
  EXPECT_EQ(step.batch.tokens, want.batch.tokens);
  EXPECT_EQ(step.batch.outputs, want.batch.outputs);
  EXPECT_EQ(step.positions, want.positions);
  EXPECT_EQ(step.copies, want.copies);
  EXPECT_EQ(step.frames, want.frames);
  ASSERT_EQ(step.states.size(), 2u);
  EXPECT_EQ(step.states[0].from, FixedStates::kZeros);
  EXPECT_EQ(step.states[0].to, 3);
  EXPECT_EQ(step.states[1].from, 5);
  ASSERT_EQ(step.runs.size(), 2u);
  EXPECT_EQ(step.runs[0].rows, 2);
  EXPECT_EQ(step.runs[0].first_position, 63);
  EXPECT_EQ(step.runs[1].first_row, 2);
  EXPECT_EQ(step.runs[1].sequence, 1);
  for (const SequenceRun& run : step.runs) {
    EXPECT_EQ(std::vector<std::int32_t>(run.pages.begin(), run.pages.end()), pages);
  }
}

TEST(RankCommand, CopiesOfPagesComeBackAsTheyWere) {
  const RankCommand command = decode_command(encode(PageCopy{PageCopy::Of::f16_copy, 3, 8}));
  EXPECT_EQ(std::get<PageCopy>(command).of, PageCopy::Of::f16_copy);
  EXPECT_EQ(std::get<PageCopy>(command).from, 3);
  EXPECT_EQ(std::get<PageCopy>(command).to, 8);
  EXPECT_TRUE(std::holds_alternative<RankEnd>(decode_command(encode(RankEnd()))));
}

TEST(RankCommand, StatesComeBackAsTheyWere) {
  const RankCommand command = decode_command(encode(StateTransfer{StateTransfer::Kind::write, 12}));
  EXPECT_EQ(std::get<StateTransfer>(command).kind, StateTransfer::Kind::write);
  EXPECT_EQ(std::get<StateTransfer>(command).state, 12);
}

SequenceTransfer some_transfer() { return {SequenceTransfer::Kind::load, {4, 9}, {-1, 3}, {2}}; }

TEST(RankCommand, SavedSequencesComeBackAsTheyWere) {
  const RankCommand command = decode_command(encode(some_transfer()));
  const auto& transfer = std::get<SequenceTransfer>(command);
  EXPECT_EQ(transfer.kind, SequenceTransfer::Kind::load);
  EXPECT_EQ(transfer.pages, some_transfer().pages);
  EXPECT_EQ(transfer.frames, some_transfer().frames);
  EXPECT_EQ(transfer.copies, some_transfer().copies);
}

TEST(RankCommand, EveryTruncatedCommandIsRefused) {
  const std::vector<std::int32_t> pages = {9, 3};
  for (const auto& whole : {encode(some_step(pages)), encode(PageCopy{}), encode(RankEnd()),
                            encode(some_transfer()), encode(StateTransfer{})}) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      EXPECT_THROW(decode_command(std::span(whole).first(size)), Error) << size;
    }
    std::vector<std::byte> longer = whole;
    longer.push_back(std::byte{0});
    EXPECT_THROW(decode_command(longer), Error);
  }
  EXPECT_THROW(decode_command(std::vector(1, std::byte{4})), Error);
}

// Lists with contradictory sizes are refused, because they would be read beyond their ends.
TEST(RankCommand, StepsThatContradictThemselvesAreRefused) {
  const std::vector<std::int32_t> pages = {9, 3}, one_page = {9};
  const auto refused = [&](auto change) {
    RankStep step = some_step(pages);
    change(step);
    EXPECT_THROW(decode_command(encode(step)), Error);
  };
  refused([](RankStep& step) { step.positions.pop_back(); });
  refused([](RankStep& step) { step.batch.outputs = {3}; });
  refused([](RankStep& step) { step.batch.outputs = {-1}; });
  refused([](RankStep& step) { step.runs.pop_back(); });
  refused([](RankStep& step) { step.runs[0].rows = 1; });
  refused([](RankStep& step) { step.runs[0].rows = -2; });
  refused([](RankStep& step) { step.runs[0].first_position = -1; });
  refused([&](RankStep& step) { step.runs[0].pages = one_page; });
}

}  // namespace
}  // namespace leq
