// Guesses and what they are worth, by hand.
#include "engine/speculation.h"

#include <gtest/gtest.h>

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
  // 5 6 7 was followed by 1; the later 6 7, after something else, by 2.
  const std::vector<Token> context = {5, 6, 7, 1, 8, 6, 7, 2, 0, 5, 6, 7};
  EXPECT_EQ(proposed(proposer, context, 1), std::vector<Token>{1});
}

TEST(NgramProposer, ARunThatGoesOnIsGuessedToItsEnd) {
  NgramProposer proposer;
  const std::vector<Token> context = {4, 4, 4, 4};
  EXPECT_EQ(proposed(proposer, context, 8), std::vector<Token>{4});
}

TEST(GuessesThatPay, FollowTheCostOfSteps) {
  StepCosts flat, steep;
  for (int i = 0; i < 5; ++i) {
    for (const std::int64_t rows : {1, 2, 4, 8, 16, 32}) {
      flat.saw(rows, 0, 1.0);
      steep.saw(rows, 0, static_cast<double>(rows));
    }
  }
  EXPECT_EQ(guesses_that_pay(0.9, flat, 1, 16), 16);
  EXPECT_EQ(guesses_that_pay(0.9, steep, 1, 16), 0);
  EXPECT_EQ(guesses_that_pay(0.001, flat, 1, 16), 0);
  EXPECT_EQ(guesses_that_pay(0.9, StepCosts(), 1, 16), 0);  // nothing is known
}

TEST(GuessesThatPay, AreThoseWithTheMostTokensInASecond) {
  StepCosts costs;
  for (int i = 0; i < 9; ++i) {
    costs.saw(1, 0, 1.0);
    costs.saw(2, 0, 1.0);
    costs.saw(4, 0, 1.1);
    costs.saw(8, 0, 2.5);
    costs.saw(16, 0, 5.0);
  }
  // 1 + 0.8 + 0.64 + 0.512 tokens in 1.1; with 4 more at most 4.16 in 2.5.
  EXPECT_EQ(guesses_that_pay(0.8, costs, 1, 15), 3);
}

TEST(Speculator, StopsGuessingWhatIsWrongAndTriesAgain) {
  StepCosts costs;
  for (int i = 0; i < 9; ++i) {
    costs.saw(1, 0, 1.0);
    costs.saw(2, 0, 1.3);
    costs.saw(4, 0, 2.0);
    costs.saw(16, 0, 6.0);
  }
  const std::vector<Token> context = {1, 2, 3, 4, 5, 1, 2};
  Speculator speculator;
  ASSERT_GT(speculator.guess(context, 8, costs, 1).size(), 0u);
  for (int i = 0; i < 40; ++i) speculator.saw(1, 0);
  EXPECT_EQ(speculator.guess(context, 8, costs, 1).size(), 0u);
  for (int i = 0; i < 400; ++i) speculator.saw(0, 0);
  EXPECT_GT(speculator.guess(context, 8, costs, 1).size(), 0u);
}

TEST(StepCosts, PromptsTakeWhatTheyMay) {
  StepCosts costs;
  EXPECT_EQ(costs.prompt_tokens_within(2, 4), StepCosts::kFewest);
  for (int i = 0; i < 50; ++i) {
    costs.saw(4, 0, 0.1);
    costs.saw(4, 100, 0.3);  // 0.002 a token
  }
  EXPECT_NEAR(static_cast<double>(costs.prompt_tokens_within(2, 4)), 50, 2);
  EXPECT_NEAR(static_cast<double>(costs.prompt_tokens_within(3, 3)), 100, 3);
}

TEST(StepCosts, OneBusyMomentIsNotBelieved) {
  StepCosts costs;
  for (int i = 0; i < 20; ++i) costs.saw(1, 0, 0.01);
  costs.saw(1, 0, 10);
  EXPECT_LT(costs.seconds(1), 0.02);
}

}  // namespace
}  // namespace leq
