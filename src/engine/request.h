// Log probabilities of a drawn token and of the most probable alternatives, computed from the raw
// logits before biases, penalties, temperature and truncation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "chat/reply.h"
#include "engine/scheduler.h"
#include "engine/speculation.h"
#include "grammar/grammar.h"
#include "model/session.h"
#include "tokenizer/spec.h"

namespace leq {

struct TokenLogprob {
  Token id = kNoToken;
  float logprob = 0;  // natural logarithm of its share of softmax(logits)
};

struct TokenLogprobs : TokenLogprob {
  std::vector<TokenLogprob> top;  // most probable tokens, best first; on ties lowest id first
};

// `logits` has V values, `id` is below V, and `top` is in [0, V].
TokenLogprobs token_logprobs(std::span<const float> logits, Token id, int top);
// Like token_logprobs, for the arguments of EngineRequest::on_logits; `logits` is [tokens][V].
std::vector<TokenLogprobs> token_logprobs(std::span<const Token> tokens,
                                          std::span<const float> logits, int top);

// A request to an engine, its options and its result.

// Limit per reply and step. Each draft token needs a row of logits, which RunLimits::output_tokens
// counts in addition to the one row that every sequence needs.
inline constexpr std::int64_t kMaxDraftTokens = 16;

struct EngineOptions {
  bool reuse_prefixes = true;
  bool speculate = true;
  bool find_drafts = true;  // uses n-grams of the text
  // A small model with the same vocabulary (require_same_vocabulary) that drafts too, or the
  // model's own multi-token prediction head (make_mtp_session). The session has the limits of
  // draft_limits and must outlive the engine; no other object may use its cache.
  Session* draft = nullptr;
  std::int64_t max_draft_tokens = kMaxDraftTokens;  // limit per reply and step
  DraftPlanner plan_drafts = plan_draft_tokens;     // chooses each reply's number
  // If only one reply is generated, on a device that samples asynchronously, its next step is
  // launched before the host has the reply's last token (docs/engine.md, One step ahead).
  bool run_ahead = true;
  // A step that feeds prompts while other requests draw tokens may take at most this many times as
  // long as the same step without prompts, times prompts_per_writer() (scheduler.h).
  double prompt_slowdown = 1.5;
};

struct EngineReply : FinishedReply {
  RequestId id = 0;
  std::optional<Error> error;      // set if the request failed
  double waiting_seconds = 0;      // time until it had a sequence
  double first_token_seconds = 0;  // from submission; 0: there was no token
  std::int64_t draft_tokens = 0, accepted_tokens = 0;
  std::int32_t sequence = -1;  // the sequence used last; -1: it never had one
  int evictions = 0;           // number of times that its pages were evicted and recomputed
};

// A known reply, for measurements. The model is fed and samples as usual, but each drawn token is
// replaced by the next of these tokens until none is left.
struct Replay {
  std::vector<Token> tokens;
  // The draft model's tokens are replaced by right or wrong tokens so that this share is right.
  double draft_share = 0;
};

// Receives the number of prompt tokens fed so far and of all that were not in the prefix cache.
using PromptSink = std::function<void(std::int64_t fed, std::int64_t all)>;

struct EngineRequest {
  std::vector<Token> prompt;  // everything before the reply, from the text's start
  SamplingSettings sampling = {};
  std::vector<Token> banned = {};  // ids never drawn, beside those that stand for no text
  StopRules stop = {};
  std::uint32_t reply = 0;   // number of the reply and, if a request has
  std::uint32_t choice = 0;  // several replies, its index: both affect the random draws
  bool at_text_start = false;
  // Constrains the reply; null allows any text. If the grammar allows no further token, the reply
  // ends as with an end token.
  std::shared_ptr<const Grammar> grammar = nullptr;
  std::vector<Token> shown = {};  // special tokens whose text is shown (tool_calls.h)
  std::shared_ptr<const ReasoningBudget> reasoning = nullptr;  // limit on reasoning (reasoning.h)
  int priority = 0;                                            // higher priorities are served first
  std::optional<double> seconds = {};                          // time limit after submission
  Replay replay = {};
  // The probable text of the reply. Its tokens are used as draft tokens before all other drafts, as
  // many per step as fit. Like all draft tokens they do not change the reply.
  std::vector<Token> expected = {};
  // Called when the request gets a sequence, and after each step that fed some of its prompt.
  PromptSink on_prompt = [](std::int64_t, std::int64_t) {};
  TextSink on_text = [](std::string_view) {};
  // Receives the tokens that a step added to the reply, before their text.
  std::function<void(std::span<const Token>)> on_tokens = [](std::span<const Token>) {};
  // If set, receives the same tokens and the raw logits [tokens][V] from which they were drawn,
  // before sampling settings are applied (logprobs.h, receipt.h). Called before on_tokens.
  std::function<void(std::span<const Token>, std::span<const float>)> on_logits = {};
  std::function<void(const EngineReply&)> on_end = [](const EngineReply&) {};
};

}  // namespace leq
