// Speculative decoding: draft tokens are guesses at the next tokens. The model verifies several of
// them in one step, which takes little longer than one token, and accepts those that equal its own
// draws, so that drafts change only a reply's speed. Drafts are found earlier in the text (n-grams)
// or made by a draft model.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "chat/reply.h"
#include "engine/prefix_cache.h"
#include "engine/scheduler.h"
#include "model/session.h"
#include "tokenizer/tokenizer.h"

namespace leq {

struct EngineOptions;
struct EngineRequest;

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

// A draft model. One of its steps drafts one token for every reply in the batch. It is a small
// model, or the large model's own multi-token prediction (MTP) head, which reads the large model's
// hidden states (ModelConfig::reads_hidden). It samples with each request's settings and random
// number, so that at any temperature both models draw the same token where their logits agree.

// Throws Error unless every token id has the same piece in both tokenizers, because draft tokens
// are passed as ids. The error names both models (`draft`, `model`) and the first id that differs.
void require_same_vocabulary(const Tokenizer& tokenizer, std::string_view model,
                             const Tokenizer& draft_tokenizer, std::string_view draft);

// Limits for the session of a draft model that is used with a session with `limits`: as many
// sequences and positions, unless the draft model's context is shorter.
RunLimits draft_limits(const RunLimits& limits, const ModelConfig& draft);

// Memory that a session of make_mtp_session needs in addition to a session with these limits.
MemoryPlan plan_mtp(const Model& model, const RunLimits& limits, const Layout& layout);

class DraftModel {
 public:
  // `session` must have the limits of draft_limits and outlive the object, and no other object may
  // use its cache. `vocabulary`: the large model's number of logits, which may be padded
  // differently. Throws Error if the draft model has act online.
  DraftModel(Session& session, std::int64_t vocabulary);

  // Whether the engine must pass hidden states to record_hidden().
  bool reads_hidden() const { return reads_hidden_; }
  // Stores the large model's hidden states after the final norm, [n][W], for n tokens of a sequence
  // from `position` on. To be called after each step that fed tokens of the sequence.
  void record_hidden(std::int32_t sequence, std::int64_t position, std::span<const float> rows);
  // Whether so many states are unread that follow() must read them even if no tokens are drafted.
  bool lags(std::int32_t sequence) const;

  struct Reader {
    std::int32_t sequence = 0;
    std::span<const Token> tokens;  // the whole text from its start
  };
  // Feeds the tokens that are missing in the draft model's cache, at most one step of them, so that
  // the next draft starts without this delay.
  void follow(std::span<const Reader> readers);

  struct Writer {
    std::int32_t sequence = 0;
    Reply* reply = nullptr;
    std::int64_t most = 0;           // max. number of draft tokens
    std::vector<Token> script = {};  // replaces the first draws, for measurements
    std::vector<Token> drafts = {};  // result; may be shorter than `most`, or empty
  };
  void draft(std::span<Writer> writers);

  // Called when the sequence is released. Its pages stay in the prefix cache for later requests.
  void leave(std::int32_t sequence);

  // Measured costs of the draft model's steps.
  const StepCosts& costs() const { return costs_; }
  // The error that ended drafting; no draft tokens are made after this error.
  const std::optional<Error>& error() const { return error_; }

 private:
  // Tokens to feed to one sequence: the first `feed` of `tokens` that its cache does not hold yet.
  struct Part {
    std::int32_t sequence = 0;
    std::span<const Token> tokens;
    std::int64_t feed = 0;
    bool whole = false;                  // all missing tokens are fed
    std::span<const float> hidden = {};  // [W] state to read with a draft token: the head's own
  };
  // Hidden states of the large model that the head has not read yet.
  struct HiddenRows {
    std::int64_t first = 0;  // position of the first row
    std::vector<float> rows;
  };
  std::optional<Part> part_of(std::int32_t sequence, std::span<const Token> tokens,
                              std::int64_t more, std::int64_t left);
  void begin(std::int32_t sequence, std::span<const Token> tokens);
  bool forward(std::span<const Part> parts, Batch::Want want);
  bool draw(std::span<Writer* const> writers);
  void write(std::span<Writer> writers);
  std::vector<Part> first_parts(std::span<Writer> writers, std::vector<Writer*>& drafting);
  std::vector<std::size_t> take_draws(std::vector<Writer*>& drafting);
  std::vector<Part> next_parts(std::span<Writer* const> drafting,
                               std::span<const std::size_t> rows);
  std::span<const Token> text_of(std::span<const Token> tokens) const;
  void add_hidden(const Part& part, std::int64_t from);
  void drop_read(std::int32_t sequence);
  void drop_first(HiddenRows& known, std::int64_t rows) const;
  void disable(const Error& error);

  std::vector<Token>& fed(std::int32_t sequence) {
    return fed_[static_cast<std::size_t>(sequence)];
  }

  Session& session_;
  std::int64_t vocabulary_;
  PrefixCache prefixes_;
  StepCosts costs_;
  std::optional<Error> error_;
  std::vector<std::vector<Token>> fed_;  // by sequence: tokens in its cache
  bool reads_hidden_ = false;
  std::size_t width_ = 0;
  std::vector<HiddenRows> hidden_;  // by sequence: unread rows
  std::vector<float> batch_hidden_, own_hidden_;
  // The sequences that draft in this step, with their length in tokens before the draft tokens.
  std::vector<std::pair<std::int32_t, std::size_t>> drafting_;
  std::int64_t pages_ = 0;  // pages that the current step takes
  Batch batch_;
  const Rows* logits_ = nullptr;
  std::vector<std::vector<LogitChange>> changes_;
  std::vector<std::vector<std::uint64_t>> masks_;
  std::vector<SampleRequest> requests_;
  std::vector<Token> drawn_;
};

// Chooses the draft tokens that the model verifies in a step in addition to each reply's next token
// (speculation.h). They are taken from the request's expected reply, the text, or a draft model, as
// many as raise the token rate.

// Draft tokens of one reply in a step, and statistics of earlier drafts that predict their success.
struct Drafts {
  NgramProposer proposer = {};
  DraftRecord record = {};
  std::vector<Token> tokens = {};
  DraftKind kind = 0;  // source of `tokens`
};

class Speculator {
 public:
  // Both arguments must outlive the object. Throws Error as the constructor of DraftModel does.
  Speculator(Session& session, const EngineOptions& options);

  // One reply that draws a token in the step.
  struct Writer {
    std::int32_t sequence = 0;
    const EngineRequest* request = nullptr;
    Reply* reply = nullptr;
    Drafts* drafts = nullptr;  // receives the draft tokens, if there are any
  };
  // Sets the draft tokens of all writers. `costs`: costs of the large model's steps.
  void propose(std::span<const Writer> writers, const StepCosts& costs);

  // Null if there is no draft model. DraftModel::error() says why it stopped.
  DraftModel* draft_model() { return draft_ ? &*draft_ : nullptr; }
  const DraftModel* draft_model() const { return draft_ ? &*draft_ : nullptr; }
  // Whether a draft model drafts, and whether the engine must pass hidden states to it.
  bool drafts() const { return draft_ && !draft_->error(); }
  bool reads_hidden() const { return drafts() && draft_->reads_hidden(); }

 private:
  bool take_expected(const Writer& writer) const;
  std::vector<Token> script_of(const Writer& writer) const;
  std::int64_t max_drafts(const Writer& writer) const;

  Session& session_;
  const EngineOptions& options_;
  std::size_t vocabulary_;
  std::optional<DraftModel> draft_;
};

}  // namespace leq
