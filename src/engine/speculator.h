// Draft tokens for the replies of one step: what the model is asked to check beside the token that
// each of them draws (speculation.h). They are expected by who asked, found in the text, or made by
// a draft model, as many as pay.
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

// Of one reply: its draft tokens in a step, and what is learned from those before.
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
    Drafts* drafts = nullptr;  // gets the tokens, perhaps none
  };
  // `costs`: what steps of the session cost.
  void propose(std::span<const Writer> writers, const StepCosts& costs);

  // The draft model reads prompts as they are fed, not when it is to say what follows them.
  void follow(std::span<const DraftModel::Reader> prompts);
  bool follows() const { return draft_.has_value(); }
  // DraftModel::saw, where reads_hidden().
  bool reads_hidden() const { return drafts() && draft_->reads_hidden(); }
  void saw(std::int32_t sequence, std::int64_t position, std::span<const float> rows);
  bool lags(std::int32_t sequence) const { return draft_ && draft_->lags(sequence); }
  // The sequence is somebody else's from now on.
  void leave(std::int32_t sequence);
  // Whether a draft model makes tokens, and why it makes no more.
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
