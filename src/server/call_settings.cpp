#include "server/call_settings.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "server/api_fields.h"

namespace leq {
namespace {

constexpr std::size_t kMostStops = 32;
constexpr std::size_t kMostStopBytes = 1024;
constexpr std::size_t kMostBiases = 1024;

// Names of a sampling setting in other servers' APIs, accepted in addition to leq's.
struct KnobAlias {
  std::string_view alias, name;
};
constexpr std::array kAliases = {KnobAlias{"mirostat_tau", "mirostat_ent"},
                                 KnobAlias{"mirostat_eta", "mirostat_lr"}};

void read_knob(JsonNode body, std::string_view member, const SamplingKnob& knob,
               SamplingSettings& sampling) {
  const auto value = number_field(body, member);
  if (!value) return;
  if (knob.is_whole() && !given_field(body, member).whole()) {
    field_error(member, "a whole number", given_field(body, member));
  }
  try {
    set_knob(sampling, knob, *value);
  } catch (const Error&) {
    field_error(member, knob.range, given_field(body, member));
  }
  sampling.penalties_when_greedy |= knob.role == KnobRole::penalty;
}

// Reads {"15043": -100}, or llama-server's form [[15043, -1.5], [29905, false]].
std::vector<LogitBias> read_biases(JsonNode body, std::size_t vocabulary) {
  constexpr std::string_view kName = "logit_bias";
  const JsonNode found = given_field(body, kName);
  std::vector<LogitBias> biases;
  if (!found) return biases;
  const auto add = [&](std::optional<std::int64_t> id, JsonNode value) {
    if (!id || *id < 0 || static_cast<std::size_t>(*id) >= vocabulary) {
      field_error(kName, "ids of the model's " + std::to_string(vocabulary) + " tokens", found);
    }
    const bool never = value && value.is_boolean() && !value.boolean();
    if (!never && (!value || !value.is_number())) {
      field_error(kName, "a number for each token", found);
    }
    const double bias = never ? double{kNoLogit} : value.number();
    biases.push_back({static_cast<std::int32_t>(*id), static_cast<float>(bias)});
  };
  if ((!found.is_object() && !found.is_array()) || found.size() > kMostBiases) {
    field_error(kName, "an object of at most " + std::to_string(kMostBiases) + " tokens", found);
  }
  for (const JsonNode one : found) {
    if (found.is_object()) {
      add(parse_int(one.key()), one);
    } else if (one.is_array() && one.size() == 2) {
      add(one[0].whole(), one[1]);
    } else {
      field_error(kName, "pairs of a token and a number", found);
    }
  }
  return biases;
}

struct Effort {
  std::string_view name;
  std::int64_t tokens;
};
// Reasoning efforts as limits on reasoning tokens; "none" disables thinking.
constexpr std::array kEfforts = {
    Effort{"none", 0},  Effort{"minimal", 256}, Effort{"low", 1024}, Effort{"medium", 4096},
    Effort{"high", -1}, Effort{"xhigh", -1},    Effort{"max", -1}};

const Effort& effort_named(const std::string& name, JsonNode found) {
  const auto* effort = std::ranges::find(kEfforts, name, &Effort::name);
  if (effort == kEfforts.end()) {
    field_error("reasoning_effort", "none, minimal, low, medium, high or xhigh", found);
  }
  return *effort;
}

struct RefusedMember {
  std::string_view name, advice;
};
constexpr std::array kRefusedOfChats = {
    RefusedMember{"functions", "is not supported; use tools"},
    RefusedMember{"function_call", "is not supported; use tool_choice"},
    RefusedMember{"audio", "is not supported: replies are texts"},
    RefusedMember{"web_search_options", "is not supported: the server searches nothing"},
};

bool is_empty_list(JsonNode node) { return node.is_array() && node.size() == 0; }

}  // namespace

SamplingSettings read_sampling(JsonNode body, const ApiModel& model, bool& has_seed) {
  SamplingSettings sampling = model.sampling;
  for (const SamplingKnob& knob : kSamplingKnobs) {
    if (!knob.config_key.empty() && knob.config_key != knob.name) {
      read_knob(body, knob.config_key, knob, sampling);
    }
    read_knob(body, knob.name, knob, sampling);
  }
  for (const KnobAlias& alias : kAliases) {
    read_knob(body, alias.alias, kSamplingKnobs[knob_index(alias.name)], sampling);
  }
  for (const LogitBias& bias : read_biases(body, model.vocabulary)) {
    sampling.logit_bias.push_back(bias);
  }
  const auto seed = whole_field(body, "seed", std::numeric_limits<std::int64_t>::min(),
                                std::numeric_limits<std::int64_t>::max());
  has_seed = model.has_seed;
  if (seed && *seed != -1) {  // -1 requests a new seed, as in llama-server
    sampling.seed = static_cast<std::uint64_t>(*seed);
    has_seed = true;
  }
  return sampling;
}

StopRules read_stop(JsonNode body, const ApiModel& model) {
  StopRules stop = model.stop;
  for (std::string& text : texts_field(body, "stop", kMostStops)) {
    if (text.size() > kMostStopBytes) field_error("stop", "a text of more than 1024 bytes");
    stop.strings.push_back(std::move(text));
  }
  for (const char* name : {"n_predict", "max_tokens", "max_completion_tokens"}) {
    if (const auto most = whole_field(body, name, -1, kMostTokensRequested))
      stop.max_tokens = *most;
  }
  return stop;
}

int read_logprobs(CallStyle style, JsonNode body, const ApiModel& model) {
  if (is_chat(style)) {
    const auto top = whole_field(body, "top_logprobs", 0, model.most_logprobs);
    if (flag_field(body, "logprobs")) return static_cast<int>(top.value_or(0));
    if (top && *top > 0) field_error("top_logprobs", "expected logprobs to be true beside it");
    return -1;
  }
  const char* name = style == CallStyle::text ? "logprobs" : "n_probs";
  const auto top = whole_field(body, name, 0, model.most_logprobs);
  if (!top || (style == CallStyle::native && *top == 0)) return -1;
  return static_cast<int>(*top);
}

ThinkingSettings read_thinking(JsonNode body, const ApiModel& model) {
  ThinkingSettings thinking = {.tokens = model.reasoning_tokens};
  const JsonNode variables = object_field(body, "chat_template_kwargs");
  const JsonNode enabled = given_field(variables, "enable_thinking");
  if (enabled && enabled.is_boolean()) thinking.enabled = enabled.boolean();
  auto effort = text_field(body, "reasoning_effort");
  if (!effort) effort = text_field(object_field(body, "reasoning"), "effort");
  if (effort) {
    const Effort& found = effort_named(*effort, given_field(body, "reasoning_effort"));
    thinking.effort = found.name;
    if (found.tokens >= 0) thinking.tokens = found.tokens;
    if (found.tokens == 0) thinking.enabled = false;
  }
  for (const char* name : {"thinking_budget", "thinking_budget_tokens"}) {
    if (const auto most = whole_field(body, name, -1, kMostTokensRequested))
      thinking.tokens = *most;
  }
  // If thinking is disabled the limit is 0, because some templates begin reasoning anyway.
  if (thinking.enabled == false) thinking.tokens = 0;
  return thinking;
}

void refuse_members(CallStyle style, JsonNode body) {
  const auto is_given = [&](std::string_view name) {
    const JsonNode found = given_field(body, name);
    return found && !is_empty_list(found);
  };
  if (is_chat(style)) {
    for (const RefusedMember& member : kRefusedOfChats) {
      if (is_given(member.name)) field_error(member.name, member.advice);
    }
    const JsonNode modalities = given_field(body, "modalities");
    for (const JsonNode one : modalities) {
      if (!one.is_string() || one.text() != "text") {
        field_error("modalities", "only text is supported: replies are texts");
      }
    }
  }
  if (style == CallStyle::text) {
    if (!text_field(body, "suffix").value_or("").empty()) {
      field_error("suffix", "is not supported: a reply goes on from its prompt");
    }
    const auto best = whole_field(body, "best_of", 1, kMostTokensRequested);
    if (best && *best > whole_field(body, "n", 1, kMostTokensRequested).value_or(1)) {
      field_error("best_of", "is not supported; ask for n replies and choose");
    }
  }
}

}  // namespace leq
