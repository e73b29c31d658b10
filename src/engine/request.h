// A request to an engine, its options and its result.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/scheduler.h"
#include "engine/speculation.h"
#include "generate/grammar/grammar.h"
#include "generate/reply.h"
#include "model/session.h"

namespace leq {

// Per reply and step. Each draft token needs a row of logits: RunLimits::output_tokens counts it
// beside the one row that every sequence needs.
inline constexpr std::int64_t kMaxDraftTokens = 16;

struct EngineOptions {
  bool reuse_prefixes = true;
  bool speculate = true;
  bool find_drafts = true;  // n-grams of the text
  // A small model with the same vocabulary (require_same_vocabulary) that drafts too, or the
  // model's own head of multi-token prediction (make_mtp_session). It has the limits of
  // draft_limits and must outlive the engine; nothing else may use its cache.
  Session* draft = nullptr;
  std::int64_t max_draft_tokens = kMaxDraftTokens;  // per reply and step
  DraftPlanner plan_drafts = plan_draft_tokens;     // per reply: the number that pays
  // Where a single reply is generated on a device that samples asynchronously, its next step is
  // launched before the host has its last token (docs/engine.md, One step ahead).
  bool run_ahead = true;
  // Limit on a step that feeds prompts while other requests draw a token: at most this many times
  // as long as the same step without prompts, times prompts_per_writer() (scheduler.h).
  double prompt_patience = 1.5;
};

struct EngineReply : FinishedReply {
  RequestId id = 0;
  std::optional<Error> error;      // set where it failed
  double waiting_seconds = 0;      // until it had a sequence
  double first_token_seconds = 0;  // from its submission; 0: no token
  std::int64_t draft_tokens = 0, accepted_tokens = 0;
  std::int32_t sequence = -1;  // its last one; -1: it never had one
  int evictions = 0;           // times that its pages were evicted and computed again
};

// A known reply, for measurements. The model is fed and samples as usual, but these tokens replace
// the drawn ones until they are used up.
struct Replay {
  std::vector<Token> tokens;
  // Replaces the draft model's draft tokens: this share of them is right.
  double draft_share = 0;
};

// Receives the number of fed prompt tokens, and of all that were not in the prefix cache.
using PromptSink = std::function<void(std::int64_t fed, std::int64_t all)>;

struct EngineRequest {
  std::vector<Token> prompt;  // everything before the reply, from the text's start
  SamplingSettings sampling = {};
  std::vector<Token> banned = {};  // never drawn, beside the ids that stand for no text
  StopRules stop = {};
  std::uint32_t reply = 0;   // its number and,
  std::uint32_t choice = 0;  // among several of one request, its index: draws depend on both
  bool at_text_start = false;
  // Constrains the reply; null: any text. Where no token can follow, the reply ends as with an end
  // token.
  std::shared_ptr<const Grammar> grammar = nullptr;
  std::vector<Token> shown = {};  // special tokens that are part of the text (tool_calls.h)
  std::shared_ptr<const ThoughtBudget> thoughts = nullptr;  // how long thoughts may be (thoughts.h)
  int priority = 0;                                         // higher is served first
  std::optional<double> seconds = {};                       // time limit from now
  Replay replay = {};
  // The probable text of the reply: used as draft tokens before all others, as many as a step can
  // hold. Like all draft tokens it does not change the reply.
  std::vector<Token> expected = {};
  // Called when the request has a sequence, and after each step that fed some of its prompt.
  PromptSink on_prompt = [](std::int64_t, std::int64_t) {};
  TextSink on_text = [](std::string_view) {};
  // Receives the tokens that a step added to the reply, before their text.
  std::function<void(std::span<const Token>)> on_tokens = [](std::span<const Token>) {};
  // If set, receives the same tokens and the raw logits [tokens][V] by which they were drawn,
  // before settings are applied (logprobs.h, receipt.h). Called before on_tokens.
  std::function<void(std::span<const Token>, std::span<const float>)> on_logits = {};
  std::function<void(const EngineReply&)> on_end = [](const EngineReply&) {};
};

}  // namespace leq
