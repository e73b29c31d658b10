// A draft model for speculative decoding. One of its steps drafts one token for every reply in the
// batch. It is a small model, or the large model's own multi-token prediction (MTP) head, which
// reads the large model's hidden states (ModelConfig::reads_hidden). It samples with each request's
// settings and random number, so that at any temperature both models draw the same token where
// their logits agree.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "chat/reply.h"
#include "engine/prefix_cache.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/speculation.h"
#include "model/session.h"
#include "tokenizer/tokenizer.h"

namespace leq {

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

  // Whether the engine must pass hidden states to saw().
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
  bool fetch_own_hidden();
  void drop_drafts();
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

  // Feeds prompts to the draft model while the model reads them, so that the first draft is fast.
  void follow(std::span<const DraftModel::Reader> prompts);
  bool follows() const { return draft_.has_value(); }
  // Passes hidden states to DraftModel::saw if reads_hidden().
  bool reads_hidden() const { return drafts() && draft_->reads_hidden(); }
  void record_hidden(std::int32_t sequence, std::int64_t position, std::span<const float> rows);
  bool lags(std::int32_t sequence) const { return draft_ && draft_->lags(sequence); }
  // Called when the sequence is released.
  void leave(std::int32_t sequence);
  // Whether a draft model drafts. draft_error() says why a draft model stopped.
  bool drafts() const { return draft_ && !draft_->error(); }
  const Error* draft_error() const;

 private:
  bool take_expected(const Writer& writer) const;
  std::vector<Token> script_of(const Writer& writer) const;
  std::int64_t most_found(const Writer& writer) const;

  Session& session_;
  const EngineOptions& options_;
  std::size_t vocabulary_;
  std::optional<DraftModel> draft_;
};

}  // namespace leq
