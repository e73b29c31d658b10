// Chooses the draft tokens that the model verifies in a step in addition to each reply's next token
// (speculation.h). They are taken from the request's expected reply, the text, or a draft model, as
// many as raise the token rate.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/draft_model.h"
#include "engine/request.h"
#include "engine/speculation.h"
#include "engine/step_costs.h"
#include "generate/reply.h"
#include "model/session.h"

namespace leq {

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
  void saw(std::int32_t sequence, std::int64_t position, std::span<const float> rows);
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
