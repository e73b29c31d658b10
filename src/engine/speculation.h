// Guesses at the tokens that come next. The model is asked about several of them in one step, which
// costs little more than one token; its own draws decide which are right, so a guess changes how
// long a reply takes and nothing else. They are found earlier in the text, or a draft model makes
// them (draft_model.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
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

// How guesses were made: found by an agreement of kLengths[kind] tokens, by a draft model, or by
// who asked (EngineRequest::expected).
using GuessKind = std::size_t;
inline constexpr GuessKind kDrafted = NgramProposer::kLengths.size();
inline constexpr GuessKind kExpectedReply = kDrafted + 1;
inline constexpr std::size_t kGuessKinds = kExpectedReply + 1;

// How often the guesses of one reply are right, learned from those before.
class GuessRecord {
 public:
  double right_share(GuessKind kind) const { return right_share_[kind]; }
  // Of the last guesses so many were checked, and so many right.
  void saw(GuessKind kind, std::int64_t checked, std::int64_t right);
  // A token came that nobody guessed at: what was wrong once may be right again.
  void saw_none();

 private:
  static constexpr double kFirstShare = 0.6;
  std::array<double, kGuessKinds> right_share_ = {kFirstShare, kFirstShare, kFirstShare,
                                                  kFirstShare, kFirstShare, kFirstShare};
};

// What can be guessed for one of those who write. Zeros: nothing.
struct GuessOffer {
  std::int64_t found = 0;  // guesses that were found in the text
  double found_share = 0;  // so often such a guess is right where those before it were
  std::int64_t draft = 0;  // guesses that a draft model may make at most
  double draft_share = 0;
};

struct GuessCount {
  std::int64_t guesses = 0;
  bool drafted = false;

  bool operator==(const GuessCount&) const = default;
};

// How many guesses each of those who write gets, one of `offers` each, so that all together get
// most tokens in a second. `draft`: what a draft model's own steps cost, a row for each writer that
// it guesses for.
std::vector<GuessCount> plan_guesses(std::span<const GuessOffer> offers, const StepCosts& costs,
                                     const StepCosts& draft);

using DraftPlanner = std::function<std::vector<GuessCount>(
    std::span<const GuessOffer>, const StepCosts& costs, const StepCosts& draft)>;
// So many for each, whether they pay or not, or as many as there can be: drafted where a draft
// model makes any.
DraftPlanner fixed_drafts(std::int64_t count);

}  // namespace leq
