// How a call's replies are drawn and what ends them, from the members of its body.
#pragma once

#include "base/json_tree.h"
#include "server/generation_call.h"

namespace leq {

inline constexpr std::int64_t kMostTokensAsked = 0x7fffffff;

// All throw Error naming the member at fault.
SamplingSettings read_sampling(JsonNode body, const ApiModel& model, bool& has_seed);
StopRules read_stop(JsonNode body, const ApiModel& model);
// The number of tokens in "logprobs" (completions, "n_probs"), or "top_logprobs" beside a true
// "logprobs" (chats); below 0 where none are wanted.
int read_logprobs(CallStyle style, JsonNode body, const ApiModel& model);

// How much a model may think before it answers.
struct ThinkingSettings {
  std::optional<bool> enabled = {};  // nullopt: as the server was started
  std::int64_t tokens = -1;          // most tokens of thoughts; -1: any number
  std::string effort = {};           // as templates may ask for it; empty: not said
};
ThinkingSettings read_thinking(JsonNode body, const ApiModel& model);

// Refuses what would change the reply and is not done here.
void refuse_members(CallStyle style, JsonNode body);

}  // namespace leq
