// Chooses the draft tokens of the replies in one step, which the model verifies beside the token
// that each reply draws (speculation.h): from the request's expected reply, the text, or a draft
// model, as many as raise the token rate.
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

// Draft tokens of one reply in a step, and the estimates from earlier ones.
struct Drafts {
  NgramProposer proposer = {};
  DraftRecord record = {};
  std::vector<Token> tokens = {};
  DraftKind kind = 0;  // of the tokens
};

class Speculator {
 public:
  // Both must outlive it. Throws Error as DraftModel does.
  Speculator(Session& session, const EngineOptions& options);

  // One reply that draws in the step.
  struct Writer {
    std::int32_t sequence = 0;
    const EngineRequest* request = nullptr;
    Reply* reply = nullptr;
    Drafts* drafts = nullptr;  // receives the tokens, possibly none
  };
  // Sets the writers' draft tokens. `costs`: of the session's steps.
  void propose(std::span<const Writer> writers, const StepCosts& costs);

  // Feeds prompts to the draft model as they are fed to the model, so that the first draft is fast.
  void follow(std::span<const DraftModel::Reader> prompts);
  bool follows() const { return draft_.has_value(); }
  // DraftModel::saw, where reads_hidden().
  bool reads_hidden() const { return drafts() && draft_->reads_hidden(); }
  void record_hidden(std::int32_t sequence, std::int64_t position, std::span<const float> rows);
  bool lags(std::int32_t sequence) const { return draft_ && draft_->lags(sequence); }
  // The sequence is released.
  void leave(std::int32_t sequence);
  // Whether a draft model drafts; draft_error: why it stopped.
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
