// Guesses at the tokens that come next. The model is asked about several of them in one step, which
// costs little more than one token; its own draws decide which are right, so a guess changes how
// long a reply takes and nothing else.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/step_costs.h"
#include "tokenizer/spec.h"

namespace leq {

// Finds the last few tokens earlier in prompt and reply, and guesses that what came then comes now.
class NgramProposer {
 public:
  // How many tokens must agree; the longest agreement counts.
  static constexpr std::array<std::size_t, 4> kLengths = {8, 5, 3, 2};
  struct Proposal {
    std::span<const Token> tokens;  // in `context`
    std::size_t kind = 0;           // of kLengths
  };
  // What may follow `context`, of which earlier calls saw the beginning: at most `most` tokens.
  Proposal propose(std::span<const Token> context, std::int64_t most);

 private:
  std::array<std::unordered_map<std::uint64_t, std::size_t>, kLengths.size()> after_;
  std::size_t seen_ = 0;
};

// The guesses of one reply: how many are worth their time is learned from those before.
class Speculator {
 public:
  // At most `most` guesses at what follows `context`, for a step of `outputs` rows without them.
  std::span<const Token> guess(std::span<const Token> context, std::int64_t most,
                               const StepCosts& costs, std::int64_t outputs);
  // Of the last guesses so many were checked, and so many right.
  void saw(std::int64_t checked, std::int64_t right);

 private:
  static constexpr double kExpected = 0.6;
  NgramProposer proposer_;
  std::array<double, NgramProposer::kLengths.size()> right_share_ = {kExpected, kExpected,
                                                                     kExpected, kExpected};
  std::size_t kind_ = 0;  // of the last guesses
};

// The number of guesses, at most `most`, that gives most tokens in a second, where each is right as
// often as `share` says and the step has `outputs` rows without them.
std::int64_t guesses_that_pay(double share, const StepCosts& costs, std::int64_t outputs,
                              std::int64_t most);

}  // namespace leq
