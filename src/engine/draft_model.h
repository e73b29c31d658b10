// A small model that drafts what a large one will write, for all who write together: one of its
// steps for each draft. Or the large model's own head of multi-token prediction, a model that reads
// the large one's hidden states (ModelConfig::reads_hidden). It draws with each request's own rule
// and random number, so that the two draw alike wherever their logits are alike, at any
// temperature.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/prefix_cache.h"
#include "engine/step_costs.h"
#include "generate/reply.h"
#include "model/session.h"
#include "tokenizer/tokenizer.h"

namespace leq {

// Throws Error naming both sources and the first id whose pieces differ: draft tokens are ids, so
// the two models must mean the same by them. `draft` and `model` name the sources.
void require_same_vocabulary(const Tokenizer& tokenizer, std::string_view model,
                             const Tokenizer& draft_tokenizer, std::string_view draft);

// Limits of a draft model's session beside a session with `limits`: as many sequences and
// positions, as far as `draft` reaches.
RunLimits draft_limits(const RunLimits& limits, const ModelConfig& draft);

// What make_mtp_session takes beside a session with these limits.
MemoryPlan plan_mtp(const Model& model, const RunLimits& limits, const Layout& layout);

class DraftModel {
 public:
  // `session` must outlive it, has limits as draft_limits has them, and no one else may use its
  // cache. `vocabulary`: ids of the large model, which may be padded otherwise. Throws Error where
  // the draft model has act online.
  DraftModel(Session& session, std::int64_t vocabulary);

  // Whether saw() is to be called.
  bool reads_hidden() const { return reads_hidden_; }
  // The large model's hidden states after the final norm [n][W] of n tokens of a sequence from
  // `position` on, each time that it was fed some.
  void saw(std::int32_t sequence, std::int64_t position, std::span<const float> rows);
  // Whether so many of them wait that they are to be read though nothing is drafted: follow().
  bool lags(std::int32_t sequence) const;

  struct Reader {
    std::int32_t sequence = 0;
    std::span<const Token> tokens;  // from the start
  };
  // Feeds what the sequences lack of their tokens, as much as one step takes: so that no step waits
  // for it later.
  void follow(std::span<const Reader> readers);

  struct Writer {
    std::int32_t sequence = 0;
    Reply* reply = nullptr;
    std::int64_t most = 0;           // draft tokens
    std::vector<Token> script = {};  // taken for the first draws, for measuring
    std::vector<Token> drafts = {};  // after the call; fewer, or none, where it cannot follow
  };
  void draft(std::span<Writer> writers);

  // The sequence is somebody else's from now on. Its pages are kept for who begins alike.
  void leave(std::int32_t sequence);

  // Of steps that draft.
  const StepCosts& costs() const { return costs_; }
  // What went wrong; there are no draft tokens from then on.
  const std::optional<Error>& error() const { return error_; }

 private:
  // What a sequence is to be fed: `feed` of `tokens` after those that it holds.
  struct Part {
    std::int32_t sequence = 0;
    std::span<const Token> tokens;
    std::int64_t feed = 0;
    bool whole = false;                  // nothing is missing then
    std::span<const float> hidden = {};  // of a draft token [W]: the head's own of the one before
  };
  // Rows that the head has not read yet.
  struct HiddenRows {
    std::int64_t first = 0;  // position of the first
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
  void forget_read(std::int32_t sequence);
  void forget_first(HiddenRows& known, std::int64_t rows) const;
  void give_up(const Error& error);

  std::vector<Token>& fed(std::int32_t sequence) {
    return fed_[static_cast<std::size_t>(sequence)];
  }

  Session& session_;
  std::int64_t vocabulary_;
  PrefixCache prefixes_;
  StepCosts costs_;
  std::optional<Error> error_;
  std::vector<std::vector<Token>> fed_;  // by sequence: the tokens in the cache
  bool reads_hidden_ = false;
  std::size_t width_ = 0;
  std::vector<HiddenRows> hidden_;  // by sequence
  std::vector<float> batch_hidden_, own_hidden_;
  // Sequences that draft, and how many of their tokens are none of their drafts.
  std::vector<std::pair<std::int32_t, std::size_t>> drafting_;
  std::int64_t pages_ = 0;  // that the step in work will take
  Batch batch_;
  const Rows* logits_ = nullptr;
  std::vector<std::vector<LogitChange>> changes_;
  std::vector<std::vector<std::uint64_t>> masks_;
  std::vector<SampleRequest> requests_;
  std::vector<Token> drawn_;
};

}  // namespace leq
