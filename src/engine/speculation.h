// Speculative decoding: draft tokens are guesses at the next tokens. The model verifies several of
// them in one step, which takes little longer than one token, and accepts those that equal its own
// draws, so that drafts change only a reply's speed. Drafts are found earlier in the text (n-grams)
// or made by a draft model (draft_model.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/scheduler.h"
#include "tokenizer/spec.h"

namespace leq {

// Finds an earlier occurrence of the last few tokens in prompt and reply, and proposes the tokens
// that followed this occurrence.
class NgramProposer {
 public:
  // Lengths of n-grams, longest first. The first length with a match is used.
  static constexpr std::array<std::size_t, 4> kLengths = {8, 5, 3, 2};
  struct Proposal {
    std::span<const Token> tokens;  // a part of `context`
    std::size_t kind = 0;           // index into kLengths
  };
  // At most `most` draft tokens after `context`, which begins with the contexts of earlier calls.
  Proposal propose(std::span<const Token> context, std::int64_t most);

 private:
  std::array<std::unordered_map<std::uint64_t, std::size_t>, kLengths.size()> after_;
  std::size_t seen_ = 0;
};

// Source of draft tokens: an n-gram of kLengths[kind] tokens, a draft model, or the caller
// (EngineRequest::expected).
using DraftKind = std::size_t;
inline constexpr DraftKind kDrafted = NgramProposer::kLengths.size();
inline constexpr DraftKind kExpectedReply = kDrafted + 1;
inline constexpr std::size_t kDraftKinds = kExpectedReply + 1;

// Estimates the share of right draft tokens of one reply from its earlier draft tokens.
class DraftRecord {
 public:
  double right_share(DraftKind kind) const { return right_share_[kind]; }
  // Records that `checked` draft tokens of the last step were verified and `right` were right.
  void add(DraftKind kind, std::int64_t checked, std::int64_t right);
  // Records a token sampled without a draft: shares return slowly to their initial values.
  void add_none();

 private:
  static constexpr double kFirstShare = 0.6;
  std::array<double, kDraftKinds> right_share_ = {kFirstShare, kFirstShare, kFirstShare,
                                                  kFirstShare, kFirstShare, kFirstShare};
};

// Draft tokens available for one reply; all members are zero if there are none.
struct DraftOffer {
  std::int64_t found = 0;  // number of draft tokens found in the text
  double found_share = 0;  // probability that a draft token is right if all before it are
  std::int64_t draft = 0;  // limit on tokens from a draft model
  double draft_share = 0;
};

struct DraftCount {
  std::int64_t drafts = 0;
  bool drafted = false;

  bool operator==(const DraftCount&) const = default;
};

// Chooses the numbers of draft tokens that give the highest total token rate of all `offers`.
// `draft`: costs of the draft model's steps, which have one row for each writer that it drafts
// for.
std::vector<DraftCount> plan_draft_tokens(std::span<const DraftOffer> offers,
                                          const StepCosts& costs, const StepCosts& draft);

using DraftPlanner = std::function<std::vector<DraftCount>(
    std::span<const DraftOffer>, const StepCosts& costs, const StepCosts& draft)>;

}  // namespace leq
