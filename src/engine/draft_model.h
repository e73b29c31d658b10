// A small model that drafts what a large one will write, for all who write together: one of its
// steps for each draft. It draws with each request's own rule and random number, so that the two
// draw alike wherever their logits are alike, at any temperature.
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

class DraftModel {
 public:
  // `session` must outlive it, has limits as draft_limits has them, and no one else may use its
  // cache. `vocabulary`: ids of the large model, which may be padded otherwise. Throws Error where
  // the draft model has act online.
  DraftModel(Session& session, std::int64_t vocabulary);

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
    bool whole = false;  // nothing is missing then
  };
  std::optional<Part> part_of(std::int32_t sequence, std::span<const Token> tokens,
                              std::int64_t more, std::int64_t room);
  void begin(std::int32_t sequence, std::span<const Token> tokens);
  bool forward(std::span<const Part> parts, Batch::Want want);
  bool draw(std::span<Writer* const> writers);
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
  std::int64_t pages_ = 0;               // that the step in work will take
  Batch batch_;
  const Rows* logits_ = nullptr;
  std::vector<std::vector<LogitChange>> changes_;
  std::vector<std::vector<std::uint64_t>> masks_;
  std::vector<SampleRequest> requests_;
  std::vector<Token> drawn_;
};

}  // namespace leq
