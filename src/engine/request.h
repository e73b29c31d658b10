// What an engine is asked for, and what becomes of it.
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

// Of one reply in one step. Each takes a row of logits, RunLimits::output_tokens beside the one
// that every sequence needs.
inline constexpr std::int64_t kMaxDraftTokens = 16;

struct EngineOptions {
  bool reuse_prefixes = true;
  bool speculate = true;
  bool find_drafts = true;  // in the text
  // A small model with the same vocabulary (require_same_vocabulary), which drafts too, or the
  // model's own head of multi-token prediction (make_mtp_session). Its limits
  // are those of draft_limits; it must outlive the engine, which alone uses its cache.
  Session* draft = nullptr;
  std::int64_t max_draft_tokens = kMaxDraftTokens;  // of one reply in one step, at most so many
  DraftPlanner plan_drafts = plan_draft_tokens;     // how many each reply gets: as many as pay
  // A reply that is written alone, on a device that samples asynchronously: its next step is
  // begun before the host has its last token (docs/engine.md, One step ahead).
  bool run_ahead = true;
  // A step in which others wait for their next token takes at most so many times as long for the
  // sake of prompts; times crowd_of_readers.
  double prompt_patience = 1.5;
};

struct EngineReply : FinishedReply {
  RequestId id = 0;
  std::optional<Error> error;      // where it failed
  double waiting_seconds = 0;      // before it had a sequence
  double first_token_seconds = 0;  // from its submission; 0 where there was none
  std::int64_t draft_tokens = 0, accepted_tokens = 0;
  std::int32_t sequence = -1;  // where it was written at last; -1: it never came to it
  int evictions = 0;           // times that its pages went to others and were made again
};

// For measuring: a reply that is known before. The model is fed and draws as ever, and what it
// draws is taken for these tokens, for as long as there are any.
struct Replay {
  std::vector<Token> tokens;
  // What is taken for the draft model's draft tokens: this share of them is right.
  double draft_share = 0;
};

// Is told how many of a prompt's tokens are fed, of how many that no earlier text had in the cache.
using PromptSink = std::function<void(std::int64_t fed, std::int64_t all)>;

struct EngineRequest {
  std::vector<Token> prompt;  // everything before the reply, from the text's start
  SamplingSettings sampling = {};
  std::vector<Token> banned = {};  // never drawn, beside the ids that stand for no text
  StopRules stop = {};
  std::uint32_t reply = 0;   // its number, and
  std::uint32_t choice = 0;  // which of several to one request: its draws depend on both
  bool at_text_start = false;
  // What the reply may be; null: anything. It ends as if the model had ended it where nothing can
  // follow.
  std::shared_ptr<const Grammar> grammar = nullptr;
  std::vector<Token> shown = {};  // special tokens that are part of the text (tool_calls.h)
  std::shared_ptr<const ThoughtBudget> thoughts = nullptr;  // how long thoughts may be (thoughts.h)
  int priority = 0;                                         // larger goes first
  std::optional<double> seconds = {};                       // from now; then it is interrupted
  Replay replay = {};
  // What the reply may turn out to be: drafted before all else, and as much of it as a step has
  // room for. Like any draft token it changes no token.
  std::vector<Token> expected = {};
  // When it has a sequence, and after each step that fed some of its prompt.
  PromptSink on_prompt = [](std::int64_t, std::int64_t) {};
  TextSink on_text = [](std::string_view) {};
  // What one step added to the reply, before its text.
  std::function<void(std::span<const Token>)> on_tokens = [](std::span<const Token>) {};
  // Where it is given: the same tokens and the raw logits [tokens][V] by which they were drawn,
  // whatever the settings make of these (logprobs.h, receipt.h). Called before on_tokens.
  std::function<void(std::span<const Token>, std::span<const float>)> on_logits = {};
  std::function<void(const EngineReply&)> on_end = [](const EngineReply&) {};
};

}  // namespace leq
