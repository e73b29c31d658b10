// Tests draft tokens and their expected gain, computed by hand.
#include "engine/speculation.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/random.h"

namespace leq {
namespace {

std::vector<Token> proposed(NgramProposer& proposer, const std::vector<Token>& context,
                            std::int64_t most) {
  const auto [tokens, kind] = proposer.propose(context, most);
  return {tokens.begin(), tokens.end()};
}

TEST(NgramProposer, GuessesWhatCameTheLastTime) {
  NgramProposer proposer;
  std::vector<Token> context = {1, 2, 3, 4, 9, 9, 1, 2};
  EXPECT_EQ(proposed(proposer, context, 3), (std::vector<Token>{3, 4, 9}));
  context.insert(context.end(), {7, 8, 1, 2});
  EXPECT_EQ(proposed(proposer, context, 2), (std::vector<Token>{7, 8}));
  EXPECT_EQ(proposed(proposer, context, 0), std::vector<Token>{});
  context.push_back(50);
  EXPECT_EQ(proposed(proposer, context, 4), std::vector<Token>{});
}

TEST(NgramProposer, TheLongerAgreementWins) {
  NgramProposer proposer;
  // 5 6 7 was followed by 1; a later 6 7 with another token before it was followed by 2.
  const std::vector<Token> context = {5, 6, 7, 1, 8, 6, 7, 2, 0, 5, 6, 7};
  EXPECT_EQ(proposed(proposer, context, 1), std::vector<Token>{1});
}

TEST(NgramProposer, ARunThatGoesOnIsGuessedToItsEnd) {
  NgramProposer proposer;
  const std::vector<Token> context = {4, 4, 4, 4};
  EXPECT_EQ(proposed(proposer, context, 8), std::vector<Token>{4});
}

// Returns costs of steps that were measured with these numbers of rows and seconds.
StepCosts costs_of(const std::vector<std::pair<std::int64_t, double>>& seen) {
  StepCosts costs;
  for (int i = 0; i < 9; ++i) {
    for (const auto& [rows, seconds] : seen) costs.record(rows, 0, seconds);
  }
  return costs;
}

// Plans drafts for one generating request for which `most` draft tokens were found.
DraftCount found_drafts(double share, std::int64_t most, const StepCosts& costs) {
  const DraftOffer offer = {.found = most, .found_share = share};
  return plan_draft_tokens({{offer}}, costs, {})[0];
}

TEST(PlanDraftTokens, FollowsTheCostOfSteps) {
  const StepCosts flat = costs_of({{1, 1}, {2, 1}, {4, 1}, {8, 1}, {16, 1}, {32, 1}});
  const StepCosts steep = costs_of({{1, 1}, {2, 2}, {4, 4}, {8, 8}, {16, 16}, {32, 32}});
  EXPECT_EQ(found_drafts(0.9, 16, flat).drafts, 16);
  EXPECT_EQ(found_drafts(0.9, 16, steep).drafts, 0);
  EXPECT_EQ(found_drafts(0.001, 16, flat).drafts, 0);
  EXPECT_EQ(found_drafts(0.9, 16, StepCosts()).drafts, 0);  // no costs are known yet
  EXPECT_EQ(found_drafts(0.9, 0, flat).drafts, 0);
  EXPECT_TRUE(plan_draft_tokens({}, flat, flat).empty());
}

const std::vector<std::pair<std::int64_t, double>> kRising = {
    {1, 1.0}, {2, 1.0}, {4, 1.1}, {8, 2.5}, {16, 5.0}};

TEST(PlanDraftTokens, TakesTheNumberWithTheMostTokensInASecond) {
  // 3 drafts: 1 + 0.8 + 0.64 + 0.512 tokens in 1.1 s; 4 more: at most 4.16 tokens in 2.5 s.
  EXPECT_EQ(found_drafts(0.8, 15, costs_of(kRising)).drafts, 3);
}

TEST(PlanDraftTokens, TheLikeliestOfAllWritersComeFirst) {
  const std::vector<DraftOffer> offers = {
      {.found = 9, .found_share = 0.5}, {.found = 9, .found_share = 0.9}, {}};
  // The step has four rows: one draft beside three requests, for the request most likely to accept.
  const std::vector<DraftCount> counts = plan_draft_tokens(offers, costs_of(kRising), {});
  EXPECT_EQ(counts[0].drafts, 0);
  EXPECT_EQ(counts[1].drafts, 1);
  EXPECT_EQ(counts[2].drafts, 0);
}

TEST(PlanDraftTokens, DraftsArePaidFor) {
  const StepCosts costs = costs_of({{1, 1}, {2, 1}, {4, 1}, {8, 1}, {16, 1}, {32, 1}});
  const DraftOffer offer = {.draft = 16, .draft_share = 0.6};
  // With k drafts at 0.1 s each, (1 + 0.6 + ... + 0.6^k) / (1 + 0.1 k) is largest at 3: 1.67.
  EXPECT_EQ(plan_draft_tokens({{offer}}, costs, costs_of({{1, 0.1}}))[0], (DraftCount{3, true}));
  EXPECT_EQ(plan_draft_tokens({{offer}}, costs, costs_of({{1, 0.7}}))[0], (DraftCount{0, false}));
}

TEST(PlanDraftTokens, WhatWasFoundIsFree) {
  const StepCosts costs = costs_of({{1, 1}, {2, 1}, {4, 1}, {8, 1}, {16, 1}, {32, 1}});
  const StepCosts draft = costs_of({{1, 0.02}, {2, 0.02}});
  DraftOffer offer = {.found = 8, .found_share = 0.8, .draft = 16, .draft_share = 0.8};
  EXPECT_EQ(plan_draft_tokens({{offer}}, costs, draft)[0], (DraftCount{8, false}));
  offer.found_share = 0.1;
  EXPECT_TRUE(plan_draft_tokens({{offer}}, costs, draft)[0].drafted);
  // Each of two requests gets the draft method that is better for it.
  DraftOffer other = offer;
  other.found_share = 0.95;
  const auto both = plan_draft_tokens({{offer, other}}, costs, draft);
  EXPECT_TRUE(both[0].drafted && both[0].drafts > 0);
  EXPECT_EQ(both[1], (DraftCount{8, false}));
}

TEST(DraftRecord, WhatIsWrongIsLeftAndTriedAgain) {
  const StepCosts costs = costs_of({{1, 1.0}, {2, 1.3}, {4, 2.0}, {16, 6.0}});
  DraftRecord record;
  const auto drafts = [&] { return found_drafts(record.right_share(2), 8, costs).drafts; };
  ASSERT_GT(drafts(), 0);
  for (int i = 0; i < 40; ++i) record.add(2, 1, 0);
  EXPECT_EQ(drafts(), 0);
  EXPECT_GT(found_drafts(record.right_share(kDrafted), 8, costs).drafts, 0);  // of another kind
  for (int i = 0; i < 400; ++i) record.add_none();
  EXPECT_GT(drafts(), 0);
}

TEST(StepCosts, PromptTokensUseTheTimeLimit) {
  StepCosts costs;
  EXPECT_EQ(costs.prompt_tokens_within(2, 4), StepCosts::kFewest);
  for (int i = 0; i < 50; ++i) {
    costs.record(4, 0, 0.1);
    costs.record(4, 100, 0.3);  // 0.002 per token
  }
  EXPECT_NEAR(static_cast<double>(costs.prompt_tokens_within(2, 4)), 50, 2);
  EXPECT_NEAR(static_cast<double>(costs.prompt_tokens_within(3, 3)), 100, 3);
}

// On this machine a few rows cost more per row than a prompt's many rows, and more for longer
// texts, so the cost of prompts alone underestimates their cost beside generating requests.
TEST(StepCosts, StepsWithPromptsKeepTheTimeLimit) {
  StepCosts costs;
  costs.record(0, 512, 512 * 0.0005);
  for (int i = 0; i < 5; ++i) costs.record(15, 0, 0.050);
  std::int64_t last = StepCosts::kFewest;
  for (int step = 0; step < 200; ++step) {
    const std::int64_t tokens = costs.prompt_tokens_within(1.8, 15);
    EXPECT_LE(tokens, std::max(StepCosts::kFewest, 2 * last)) << step;
    const double seconds = 0.050 + 0.004 + static_cast<double>(tokens) * (0.0010 + 0.000003 * step);
    EXPECT_LT(seconds, 0.050 * 1.9) << step;
    if (step > 10) {
      EXPECT_GT(seconds, 0.050 * 1.65) << step;
    }
    costs.record(15, tokens, seconds);
    if (step % 20 == 0) costs.record(0, 512, 512 * 0.0005);
    last = tokens;
  }
}

// If prompts are always waiting, no step shows the cost of generation without prompts.
TEST(StepCosts, PromptTokensUseTheTimeLimitIfAllStepsHavePrompts) {
  StepCosts costs;
  for (int step = 0; step < 100; ++step) {
    const std::int64_t tokens = costs.prompt_tokens_within(3, 8);
    costs.record(8, tokens, 0.050 + 0.0005 * static_cast<double>(tokens));
  }
  EXPECT_GT(costs.prompt_tokens_within(3, 8), 150);  // 200 if the cost were known
  EXPECT_LT(costs.prompt_tokens_within(3, 8), 300);
}

// If a first step took unusually long, for the only size tried or for a size that was skipped, its
// time must not be trusted forever.
TEST(StepCosts, OldMeasurementsLoseWeight) {
  StepCosts costs;
  for (int i = 0; i < 5; ++i) costs.record(1, 0, 0.01);
  costs.record(8, 0, 0.2);
  const double before = costs.seconds(8);
  for (int i = 0; i < 1000; ++i) costs.record(1, 0, 0.01);
  EXPECT_LT(costs.seconds(8), 0.5 * before);
  costs.record(8, 0, 0.02);
  costs.record(8, 0, 0.02);
  EXPECT_NEAR(costs.seconds(8), 0.02, 0.002);
}

TEST(StepCosts, NoiseKeepsTheRatioOfCosts) {
  // Each step takes its true time or up to twice as long.
  Random random(3);
  StepCosts costs;
  for (int i = 0; i < 400; ++i) {
    costs.record(1, 0, 0.01 * (1 + random.uniform()));
    costs.record(2, 0, 0.015 * (1 + random.uniform()));
  }
  const double ratio = costs.seconds(2) / costs.seconds(1);
  EXPECT_GT(ratio, 1.3);
  EXPECT_LT(ratio, 1.7);
  EXPECT_LT(costs.seconds(1), 0.0145);
}

TEST(StepCosts, CostsNeverFallWithMoreRows) {
  StepCosts costs;
  for (int i = 0; i < 5; ++i) {
    costs.record(1, 0, 0.03);
    costs.record(4, 0, 0.02);
  }
  EXPECT_LE(costs.seconds(1), costs.seconds(4));
}

TEST(StepCosts, OneOutlierBarelyChangesTheCost) {
  StepCosts costs;
  for (int i = 0; i < 20; ++i) costs.record(1, 0, 0.01);
  costs.record(1, 0, 10);
  EXPECT_LT(costs.seconds(1), 0.02);
}

}  // namespace
}  // namespace leq
