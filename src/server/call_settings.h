// Reads the sampling settings and stop rules of a call from the members of its body.
#pragma once

#include "base/json.h"
#include "server/generation_call.h"

namespace leq {

inline constexpr std::int64_t kMostTokensRequested = 0x7fffffff;

// All functions here throw Error naming the member at fault.
SamplingSettings read_sampling(JsonNode body, const ApiModel& model, bool& has_seed);
StopRules read_stop(JsonNode body, const ApiModel& model);
// Number of top tokens from "logprobs" (completions, "n_probs"), or from "top_logprobs" with
// "logprobs" true (chats); negative if no log probabilities are requested.
int read_logprobs(CallStyle style, JsonNode body, const ApiModel& model);

// Limits on a model's reasoning before its answer.
struct ThinkingSettings {
  std::optional<bool> enabled = {};  // nullopt: the server's default
  std::int64_t tokens = -1;          // limit of reasoning tokens; -1: no limit
  std::string effort = {};           // for templates that use it; empty: not given
};
ThinkingSettings read_thinking(JsonNode body, const ApiModel& model);

// Rejects unsupported members that would change the reply.
void refuse_members(CallStyle style, JsonNode body);

}  // namespace leq
