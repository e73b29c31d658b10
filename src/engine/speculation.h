// Draft tokens at the tokens that come next. The model is asked about several of them in one step,
// which costs little more than one token; its own draws decide which are right, so a draft token
// changes how long a reply takes and nothing else. They are found earlier in the text, or a draft
// model makes them (draft_model.h).
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

// Finds the last few tokens earlier in prompt and reply, and draft tokens that what came then comes
// now.
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

// How draft tokens were made: found by an agreement of kLengths[kind] tokens, by a draft model, or
// by who asked (EngineRequest::expected).
using DraftKind = std::size_t;
inline constexpr DraftKind kDrafted = NgramProposer::kLengths.size();
inline constexpr DraftKind kExpectedReply = kDrafted + 1;
inline constexpr std::size_t kDraftKinds = kExpectedReply + 1;

// How often the draft tokens of one reply are right, learned from those before.
class DraftRecord {
 public:
  double right_share(DraftKind kind) const { return right_share_[kind]; }
  // Of the last draft tokens so many were checked, and so many right.
  void saw(DraftKind kind, std::int64_t checked, std::int64_t right);
  // A token was sampled without a draft: kinds that failed may be tried again.
  void saw_none();

 private:
  static constexpr double kFirstShare = 0.6;
  std::array<double, kDraftKinds> right_share_ = {kFirstShare, kFirstShare, kFirstShare,
                                                  kFirstShare, kFirstShare, kFirstShare};
};

// What can be drafted for one of those who write. Zeros: nothing.
struct DraftOffer {
  std::int64_t found = 0;  // draft tokens that were found in the text
  double found_share = 0;  // so often such a draft token is right where those before it were
  std::int64_t draft = 0;  // draft tokens that a draft model may make at most
  double draft_share = 0;
};

struct DraftCount {
  std::int64_t drafts = 0;
  bool drafted = false;

  bool operator==(const DraftCount&) const = default;
};

// How many draft tokens each of those who write gets, one of `offers` each, so that all together
// get most tokens in a second. `draft`: what a draft model's own steps cost, a row for each writer
// that it draft tokens for.
std::vector<DraftCount> plan_draft_tokens(std::span<const DraftOffer> offers,
                                          const StepCosts& costs, const StepCosts& draft);

using DraftPlanner = std::function<std::vector<DraftCount>(
    std::span<const DraftOffer>, const StepCosts& costs, const StepCosts& draft)>;

}  // namespace leq
