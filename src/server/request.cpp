#include "server/request.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <limits>
#include <utility>

#include "base/text.h"
#include "chat/tool_grammar.h"
#include "runtime/model_files.h"

namespace leq {
namespace {

constexpr std::size_t kMaxStops = 32;
constexpr std::size_t kMaxStopBytes = 1024;
constexpr std::size_t kMaxBiases = 1024;
constexpr std::size_t kMaxPrompts = 256;
constexpr std::size_t kMaxTools = 256;

// Names of a sampling setting in other servers' APIs, accepted in addition to leq's.
struct ParameterAlias {
  std::string_view alias, name;
};
constexpr std::array kAliases = {ParameterAlias{"mirostat_tau", "mirostat_ent"},
                                 ParameterAlias{"mirostat_eta", "mirostat_lr"}};

void read_parameter(JsonNode body, std::string_view member, const SamplingParameter& parameter,
                    SamplingSettings& sampling) {
  const auto value = number_field(body, member);
  if (!value) return;
  if (parameter.is_whole() && !given_field(body, member).whole()) {
    field_error(member, "a whole number", given_field(body, member));
  }
  try {
    set_parameter(sampling, parameter, *value);
  } catch (const Error&) {
    field_error(member, parameter.range, given_field(body, member));
  }
  sampling.penalties_when_greedy |= parameter.role == ParameterRole::penalty;
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
  if ((!found.is_object() && !found.is_array()) || found.size() > kMaxBiases) {
    field_error(kName, "an object of at most " + std::to_string(kMaxBiases) + " tokens", found);
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

struct RefusedMember {
  std::string_view name, advice;
};
constexpr std::string_view kNoSuffix = "is not supported: a reply continues its prompt";
constexpr std::array kRefusedOfChats = {
    RefusedMember{"functions", "is not supported; use tools"},
    RefusedMember{"function_call", "is not supported; use tool_choice"},
    RefusedMember{"audio", "is not supported: replies are texts"},
    RefusedMember{"suffix", kNoSuffix},
    RefusedMember{"web_search_options", "is not supported: the server searches nothing"},
};

void refuse_best_of(JsonNode body) {
  const auto best = whole_field(body, "best_of", 1, kMaxTokensRequested);
  if (best && *best > whole_field(body, "n", 1, kMaxTokensRequested).value_or(1)) {
    field_error("best_of", "is not supported; ask for n replies and choose");
  }
}

}  // namespace

void refuse_members(JsonNode body) {
  for (const RefusedMember& member : kRefusedOfChats) {
    const JsonNode found = given_field(body, member.name);
    const bool is_empty =
        (found.is_array() && found.size() == 0) || (found.is_string() && found.text().empty());
    if (found && !is_empty) field_error(member.name, member.advice);
  }
  const JsonNode modalities = given_field(body, "modalities");
  for (const JsonNode one : modalities) {
    if (!one.is_string() || one.text() != "text") {
      field_error("modalities", "only text is supported: replies are texts");
    }
  }
  refuse_best_of(body);
}

void check_tool_count(std::string_view member, std::size_t count) {
  if (count <= kMaxTools) return;
  field_error(member, "at most " + std::to_string(kMaxTools) + " tools");
}

void copy_sampling(JsonNode from, Json& body) {
  const auto copy = [&](std::string_view name) {
    if (const JsonNode value = given_field(from, name)) body[name] = value.value();
  };
  for (const SamplingParameter& parameter : kSamplingParameters) {
    if (!parameter.config_key.empty()) copy(parameter.config_key);
    copy(parameter.name);
  }
  for (const ParameterAlias& alias : kAliases) copy(alias.alias);
  for (const std::string_view name : {"logit_bias", "seed"}) copy(name);
}

SamplingSettings read_sampling(JsonNode body, const ApiModel& model, bool& has_seed) {
  SamplingSettings sampling = model.sampling;
  for (const SamplingParameter& parameter : kSamplingParameters) {
    if (!parameter.config_key.empty() && parameter.config_key != parameter.name) {
      read_parameter(body, parameter.config_key, parameter, sampling);
    }
    read_parameter(body, parameter.name, parameter, sampling);
  }
  for (const ParameterAlias& alias : kAliases) {
    read_parameter(body, alias.alias, kSamplingParameters[parameter_index(alias.name)], sampling);
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
  std::vector<std::string> own = texts_field(body, "stop", kMaxStops);
  if (!own.empty()) stop.strings.clear();
  for (std::string& text : own) {
    if (text.size() > kMaxStopBytes) field_error("stop", "a text of more than 1024 bytes");
    stop.strings.push_back(std::move(text));
  }
  for (const char* name : {"n_predict", "max_tokens", "max_completion_tokens"}) {
    if (const auto most = whole_field(body, name, -1, kMaxTokensRequested)) stop.max_tokens = *most;
  }
  return stop;
}

namespace {

// Number of top tokens from "logprobs" (completions, "n_probs"), or from "top_logprobs" with
// "logprobs" true (chats); negative if no log probabilities are requested.
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

// Limits on a model's reasoning before its answer.
struct ThinkingSettings {
  std::optional<bool> enabled = {};  // nullopt: the server's default
  std::int64_t tokens = -1;          // limit of reasoning tokens; -1: no limit
  std::string effort = {};           // for templates that use it; empty: not given
};

ThinkingSettings read_thinking(JsonNode body, const ApiModel& model) {
  ThinkingSettings thinking = {.tokens = model.reasoning_tokens};
  const JsonNode variables = object_field(body, "chat_template_kwargs");
  const JsonNode enabled = given_field(variables, "enable_thinking");
  if (enabled && enabled.is_boolean()) thinking.enabled = enabled.boolean();
  const JsonNode nested = given_field(object_field(body, "reasoning"), "effort"),
                 flat = given_field(body, "reasoning_effort"), effort = flat ? flat : nested;
  if (effort) {
    const auto* found =
        std::ranges::find(kEfforts, effort.is_string() ? effort.text() : "", &Effort::name);
    if (found == kEfforts.end()) {
      field_error(flat ? "reasoning_effort" : "reasoning.effort",
                  "none, minimal, low, medium, high, xhigh or max", effort);
    }
    thinking.effort = found->name;
    if (found->tokens >= 0) thinking.tokens = found->tokens;
    if (found->tokens == 0) thinking.enabled = false;
  }
  for (const char* name : {"thinking_budget", "thinking_budget_tokens"}) {
    if (const auto most = whole_field(body, name, -1, kMaxTokensRequested)) thinking.tokens = *most;
  }
  // If thinking is disabled the limit is 0, because some templates begin reasoning anyway.
  if (thinking.enabled == false) thinking.tokens = 0;
  return thinking;
}

void refuse_members(CallStyle style, JsonNode body) {
  if (is_chat(style)) return leq::refuse_members(body);
  if (style != CallStyle::text) return;
  if (!text_field(body, "suffix").value_or("").empty()) {
    field_error("suffix", kNoSuffix);
  }
  refuse_best_of(body);
}

// Which tools a model may or must call, from "tools" and "tool_choice" of a request.
struct ToolChoice {
  enum class Use : std::uint8_t {
    none,    // there are no tools, or calls are not allowed
    free,    // the model decides
    forced,  // the reply must be a call
  };
  Use use = Use::none;
  std::vector<std::string> only = {};  // the tools that may be called; empty: all
  bool named = false;                  // forced: one call of this tool
};

JsonNode function_of(JsonNode tool) {
  const JsonNode function = tool.is_object() ? given_field(tool, "function") : JsonNode();
  if (!function || !function.is_object()) {
    field_error("tools", "objects as {\"type\": \"function\", \"function\": {...}}", tool);
  }
  return function;
}

std::string name_of(JsonNode tool) {
  const JsonNode name = given_field(function_of(tool), "name");
  if (!name || !name.is_string() || name.text().empty()) {
    field_error("tools", "a name in each function", tool);
  }
  return name.text();
}

ToolChoice read_tool_choice(JsonNode body) {
  const JsonNode tools = given_field(body, "tools");
  const JsonNode wanted = given_field(body, "tool_choice");
  const bool has_tools = tools && tools.is_array() && tools.size() > 0;
  if (tools && !tools.is_array()) field_error("tools", "an array", tools);
  check_tool_count("tools", tools.size());
  for (const JsonNode tool : tools) {
    name_of(tool);
    object_field(function_of(tool), "parameters");
  }
  std::string word = wanted && wanted.is_string() ? wanted.text() : "";
  std::vector<std::string> only;
  if (wanted && wanted.is_object()) {
    const JsonNode allowed = object_field(wanted, "allowed_tools");
    const auto add = [&](JsonNode one) {
      const auto name = text_field(object_field(one, "function"), "name");
      if (!name || name->empty()) field_error("tool_choice", "a function with a name", wanted);
      if (!has_tools) field_error("tool_choice", "there are no tools to choose from");
      bool is_there = false;
      for (const JsonNode tool : tools) is_there |= name_of(tool) == *name;
      if (!is_there) field_error("tool_choice", "there is no tool of this name");
      only.push_back(*name);
    };
    if (!allowed) {
      add(wanted);
      return {ToolChoice::Use::forced, std::move(only), true};
    }
    const JsonNode listed = given_field(allowed, "tools");
    check_tool_count("tool_choice", listed.size());
    for (const JsonNode one : listed) add(one);
    if (only.empty()) field_error("tool_choice", "at least one allowed tool", wanted);
    word = text_field(allowed, "mode").value_or("auto");
  }
  if (wanted && word != "none" && word != "auto" && word != "required") {
    field_error("tool_choice", "none, auto, required, a function or allowed_tools", wanted);
  }
  if (word == "required") {
    if (!has_tools) field_error("tool_choice", "there are no tools to choose from");
    return {ToolChoice::Use::forced, std::move(only)};
  }
  return {has_tools && word != "none" ? ToolChoice::Use::free : ToolChoice::Use::none,
          std::move(only)};
}

// Constraints on a call's reply: grammars from "response_format", "json_schema", "grammar", "tools"
// and "tool_choice", which apply after the model's reasoning.

// The requested format of an answer.
struct AnswerFormat {
  enum class Kind : std::uint8_t { any, schema, object, gbnf };
  Kind kind = Kind::any;
  std::string_view member = {};  // member of the body, for errors
  JsonNode schema = {};
  bool strict = false;
  std::string gbnf = {};

  // For the key of a cached grammar.
  std::string key() const {
    return std::string(member) + (strict ? " strict " : " ") + (schema ? schema.dump() : "object");
  }
};
using Kind = AnswerFormat::Kind;

AnswerFormat read_answer_format(JsonNode body) {
  if (const JsonNode schema = given_field(body, "json_schema")) {
    return {.kind = Kind::schema, .member = "json_schema", .schema = schema};
  }
  if (auto gbnf = text_field(body, "grammar"); gbnf && !gbnf->empty()) {
    return {.kind = Kind::gbnf, .member = "grammar", .gbnf = std::move(*gbnf)};
  }
  constexpr std::string_view kMember = "response_format";
  const JsonNode format = object_field(body, kMember);
  if (!format) return {};
  const std::string type = text_field(format, "type").value_or("");
  if (type == "text") return {};
  if (type == "json_object") {
    const JsonNode schema = object_field(format, "schema");
    return {.kind = schema ? Kind::schema : Kind::object, .member = kMember, .schema = schema};
  }
  if (type != "json_schema") {
    field_error(kMember, "the type text, json_object or json_schema", format);
  }
  const JsonNode named = object_field(format, "json_schema"), holder = named ? named : format;
  AnswerFormat read = {.kind = Kind::schema, .member = kMember};
  read.schema = given_field(holder, "schema");
  read.strict = flag_field(holder, "strict");
  if (!read.schema) field_error(kMember, "a json_schema with a schema", format);
  return read;
}

// Sets the grammar that `make(&notes)` compiles, or the cached one of this key.
template <class Make>
void set_grammar(const ApiModel& model, GenerationCall& call, const std::string& key,
                 const Make& make) {
  const GrammarStore::Compile compile = [&] {
    CompiledGrammar made;
    made.grammar = make(&made.notes);
    return made;
  };
  CompiledGrammar made =
      model.grammars == nullptr ? compile() : model.grammars->get(key, compile, call.stopped);
  call.grammar = std::move(made.grammar);
  call.notes.insert(call.notes.end(), made.notes.begin(), made.notes.end());
}

// The part of a grammar's cache key that does not depend on its schemas.
std::string key_of(std::string_view kind, ReasoningState thinking, bool flag = false) {
  return std::string(kind) + (flag ? " one " : " any ") +
         std::to_string(static_cast<int>(thinking)) + " ";
}

void set_gbnf(const AnswerFormat& format, const ApiModel& model, GenerationCall& call) {
  set_grammar(model, call, "gbnf " + format.gbnf, [&](SchemaNotes*) {
    return Grammar::from_gbnf(format.gbnf, marked_field("grammar"), call.stopped);
  });
}

// For completions, whose prompts do not determine whether reasoning follows.
void set_text_grammar(const AnswerFormat& format, const ApiModel& model, GenerationCall& call) {
  if (format.kind == Kind::any) return;
  if (format.kind == Kind::gbnf) return set_gbnf(format, model, call);
  const std::string member = marked_field(format.member);
  set_grammar(
      model, call, key_of("text", ReasoningState::none) + format.key(), [&](SchemaNotes* notes) {
        return answer_grammar({}, {format.schema, member, format.strict, call.stopped}, "", notes);
      });
}

// Sets grammar, use, tools and notes of a chat whose prompt is already rendered.
void set_chat_grammar(JsonNode body, const AnswerFormat& format, const ToolChoice& choice,
                      const ApiModel& model, GenerationCall& call) {
  const bool formatted = format.kind != Kind::any;
  call.use = ReplyUse::read;
  call.reading = model.style;
  // Under these grammars a call in reasoning is text: the call or answer comes after it.
  call.reading.calls_only = choice.use == ToolChoice::Use::forced;
  if (formatted || call.reading.calls_only) call.reading.calls_end_reasoning = false;
  call.with_tools = choice.use != ToolChoice::Use::none;
  if (call.with_tools) call.tools = body.find("tools");
  const JsonNode tools = given_field(body, "tools"),
                 several = given_field(body, "parallel_tool_calls");
  const bool one = choice.named || (several && !flag_field(body, "parallel_tool_calls"));
  const ReplyStyle& style = call.reading;
  // Without tools only the marks of reasoning are shown; text that looks like a call is content.
  ReplyStyle marks = style;
  if (!call.with_tools) marks.tools = ToolCallStyle::none;
  call.shown = shown_tokens(marks, model.tokenizer);
  const std::string& prompt = call.prompt_texts.front();
  const ReasoningState thinking = reasoning_after(style, prompt);
  const std::string source = marked_field("tools"), named = "calls " + join(choice.only) + " ",
                    member = marked_field(format.member);
  const CallRules rules = {.tools = tools,
                           .source = source,
                           .count = one ? CallCount::one : CallCount::any,
                           .only = choice.only,
                           .stopped = call.stopped};
  const AnswerSchema answer = {format.schema, member, format.strict, call.stopped};
  if (choice.use == ToolChoice::Use::forced) {
    if (formatted) field_error(format.member, "contradicts tool_choice: leave one out");
    set_grammar(
        model, call, key_of("forced " + named, thinking, one) + tools.dump(),
        [&](SchemaNotes* notes) { return forced_call_grammar(style, rules, prompt, notes); });
  } else if (format.kind == Kind::gbnf) {
    if (call.with_tools) field_error("grammar", "contradicts tools: leave one out");
    set_gbnf(format, model, call);
    call.use = ReplyUse::plain;
  } else if (formatted && call.with_tools) {
    const std::string key = key_of("answer or " + named, thinking, one) + format.key();
    set_grammar(model, call, key + ' ' + tools.dump(), [&](SchemaNotes* notes) {
      return call_or_answer_grammar(style, rules, answer, prompt, notes);
    });
  } else if (formatted) {
    set_grammar(model, call, key_of("answer", thinking) + format.key(),
                [&](SchemaNotes* notes) { return answer_grammar(style, answer, prompt, notes); });
    if (thinking == ReasoningState::none) call.use = ReplyUse::plain;
  } else if (call.with_tools) {
    // Any text is allowed before a tool call, in addition to calls.
    set_grammar(model, call, key_of(named, thinking, one) + tools.dump(),
                [&](SchemaNotes* notes) { return tool_grammar(style, rules, prompt, notes); });
  }
}

// Members as in vLLM: with continue_final_message, the reply continues the last message; with
// add_generation_prompt (default true), the prompt ends with the start of a new reply.
constexpr std::string_view kContinueFinal = "continue_final_message",
                           kAddPrompt = "add_generation_prompt";

// Whether the reply continues the last message: if the request says so, or if it says nothing and
// ends with a text of the assistant. Throws Error if that is not possible.
bool continues_last_message(JsonNode body, JsonNode messages) {
  const JsonNode last = messages.last(), role = last.find("role"), content = last.find("content");
  const bool is_text =
      role.is_string() && role.text() == "assistant" && last.find("tool_calls").size() == 0;
  if (!given_field(body, kContinueFinal) && !given_field(body, kAddPrompt)) {
    return is_text && content.is_string() && !trim(content.text()).empty();
  }
  if (!flag_field(body, kContinueFinal)) return false;
  if (flag_field(body, kAddPrompt)) {
    field_error(kContinueFinal, "contradicts add_generation_prompt: leave one out");
  }
  if (!is_text) field_error(kContinueFinal, "expected a text of the assistant as the last message");
  return true;
}

// Template variables that only the server sets.
constexpr std::array<std::string_view, 8> kOwnVariables = {
    "messages",        "tools",       "documents",
    "bos_token",       "eos_token",   "add_generation_prompt",
    "raise_exception", "strftime_now"};

JsonNode template_variables(JsonNode body) {
  constexpr std::string_view kName = "chat_template_kwargs";
  const JsonNode variables = object_field(body, kName);
  for (const JsonNode one : variables) {
    if (std::ranges::find(kOwnVariables, one.key()) == kOwnVariables.end()) continue;
    field_error(kName, "may not set " + one.key() + ", which the request's own members say");
  }
  return variables;
}

// The first message with which rendering fails with the same error (binary search); nullopt if none
// is found, or if the messages are not at fault.
std::optional<std::size_t> message_at_fault(const ChatTemplate& chat, const ChatRequest& request,
                                            const ChatOptions& options, const std::string& error) {
  const auto fails_with = [&](const Json& messages) {
    ChatRequest other = request;
    other.messages = messages;
    try {
      (void)chat.render(other, options);
      return false;
    } catch (const Error& found) {
      return error == found.what();
    }
  };
  const auto fails = [&](std::size_t count) {
    const Json* const all = request.messages.value().begin();
    return fails_with(Json::Array(all, all + count));
  };
  if (fails_with(Json::array({{{"role", "user"}, {"content", "x"}}}))) return std::nullopt;
  std::size_t low = 1, high = request.messages.size();
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (fails(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return request.messages.size() > 1 && fails(low) ? std::optional(low - 1) : std::nullopt;
}

// `added`: how many messages precede the client's; SIZE_MAX: none is the client's any longer.
std::vector<TextPart> render_checked(const ChatTemplate& chat, const ChatRequest& request,
                                     const ChatOptions& options, std::size_t added) {
  try {
    return chat.render(request, options);
  } catch (const Error& error) {
    const auto place =
        added != SIZE_MAX ? message_at_fault(chat, request, options, error.what()) : std::nullopt;
    if (!place || *place < added) throw;
    throw Error(
        marked_field("messages") + "[" + std::to_string(*place - added) + "]: " + error.what(),
        ErrorKind::bad_setting);
  }
}

bool has_system(JsonNode messages) {
  for (const JsonNode message : messages) {
    const JsonNode role = message.find("role");
    if (role.is_string() && (role.text() == "system" || role.text() == "developer")) return true;
  }
  return false;
}

// A template without the role would drop its text, or show a role that the model does not know.
void check_messages(JsonNode messages, const ChatTemplate& chat) {
  constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                      "tool"};
  if (!messages || !messages.is_array()) {
    field_error("messages", "an array of messages", messages);
  }
  if (messages.size() == 0) field_error("messages", "expected at least one message");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object()) field_error("messages", "objects with a role", messages[i]);
    const std::string place = marked_field("messages") + "[" + std::to_string(i) + "].";
    if (given_field(messages[i], "function_call")) {
      throw Error(place + "function_call: is not supported; use tool_calls",
                  ErrorKind::bad_setting);
    }
    const JsonNode role = given_field(messages[i], "role");
    const bool is_known =
        role && role.is_string() &&
        (std::ranges::find(kRoles, role.text()) != kRoles.end() || chat.names_role(role.text()));
    if (is_known) continue;
    constexpr std::size_t kShownBytes = 60;
    const std::string found = role ? printable(role.dump(), kShownBytes) : "nothing";
    throw Error(place + "role: expected system, developer, user, assistant or tool, found " + found,
                ErrorKind::bad_setting);
  }
}

struct RenderedChat {
  std::vector<TextPart> parts;
  ToolChoice choice;
  ThinkingSettings thinking;
  std::vector<std::string> notes;
};

RenderedChat rendered(CallStyle style, JsonNode body, const ApiModel& model) {
  require(model.chat != nullptr, model.name, ": ",
          model.chat_error.empty() ? "the model has no chat template" : model.chat_error,
          "; start the server with ", Setting{"chat_template"}, ", or use /v1/completions");
  ChatRequest request;
  request.messages = given_field(body, "messages");
  check_messages(request.messages, *model.chat);
  const std::size_t asked = request.messages.size();
  Json with_system;
  if (!model.system.empty() && !has_system(request.messages)) {
    with_system = Json::array({{{"role", "system"}, {"content", model.system}}});
    for (const JsonNode message : request.messages) with_system.push_back(message.value());
    request.messages = with_system;
  }
  std::size_t added = request.messages.size() - asked;
  const ToolChoice choice = read_tool_choice(body);
  if (choice.use != ToolChoice::Use::none) request.tools = body.find("tools");
  request.variables = template_variables(body);
  ChatOptions options = model.rendering;
  const ThinkingSettings thinking = read_thinking(body, model);
  if (thinking.enabled) options.enable_thinking = *thinking.enabled;
  AdaptedChat adapted = adapt_chat(request.messages, request.tools, model.takes, model.style.tools);
  if (!adapted.unread.empty()) {
    field_error("messages", "a part of the type " + adapted.unread +
                                " is not supported: the model reads texts");
  }
  if (adapted.messages) request.messages = *adapted.messages;
  if (style != CallStyle::chat || request.messages.size() != asked + added) added = SIZE_MAX;
  if (adapted.tools) request.tools = *adapted.tools;
  const bool continues = continues_last_message(body, request.messages);
  const bool asks = !given_field(body, kAddPrompt) || flag_field(body, kAddPrompt);
  options.ask_for_reply = asks && !continues;
  Json variables;
  if (!thinking.effort.empty()) {  // a variable that some templates use
    variables = request.variables ? request.variables.value() : Json::object();
    if (!variables.contains("reasoning_effort")) variables["reasoning_effort"] = thinking.effort;
    request.variables = variables;
  }
  std::vector<TextPart> parts = render_checked(*model.chat, request, options, added);
  if (continues && !reopen_last_message(parts, request.messages)) {
    const std::string reason = "the chat template does not end with the last message's text";
    if (flag_field(body, kContinueFinal)) field_error(kContinueFinal, reason);
    adapted.notes.push_back(marked_field("messages") + ": " + reason + "; a new reply begins");
    options.ask_for_reply = true;
    parts = render_checked(*model.chat, request, options, added);
  }
  return {std::move(parts), choice, thinking, std::move(adapted.notes)};
}

std::optional<Token> token_id(JsonNode node, const ApiModel& model) {
  const auto id = node.is_number() ? node.whole() : std::nullopt;
  if (!id || *id < 0 || static_cast<std::size_t>(*id) >= model.vocabulary) return std::nullopt;
  return static_cast<Token>(*id);
}

// Reads one prompt: a text between `before` and `end`, or a list of ids and texts.
std::vector<Token> read_prompt(JsonNode node, std::string_view name, const ApiModel& model,
                               Token end, const std::string& before) {
  const bool bos = model.tokenizer.add_bos();
  if (node.is_string()) return encode_text(before + node.text(), model, end);
  std::vector<Token> tokens;
  for (const JsonNode one : node) {
    if (const auto id = token_id(one, model)) {
      tokens.push_back(*id);
    } else if (one.is_string()) {
      const auto more = model.tokenizer.encode(one.text(), {.add_bos = bos && tokens.empty()});
      tokens.insert(tokens.end(), more.begin(), more.end());
    } else {
      field_error(name, "texts and ids below " + std::to_string(model.vocabulary), one);
    }
  }
  return tokens;
}

// With llama-server's reasoning_format "none", the reply's text is returned as the model writes it.
bool wants_raw_reasoning(JsonNode body) {
  constexpr std::string_view kName = "reasoning_format";
  const std::string format = text_field(body, kName).value_or("auto");
  if (format != "none" && format != "auto" && format != "deepseek") {
    field_error(kName, "none, auto or deepseek", body.find(kName));
  }
  return format == "none";
}

void read_chat(JsonNode body, const AnswerFormat& format, const ApiModel& model,
               GenerationCall& call) {
  const bool is_raw = wants_raw_reasoning(body);
  const auto [parts, choice, thinking, notes] = rendered(call.style, body, model);
  call.notes = notes;
  call.prompts.push_back(model.tokenizer.encode_parts(parts));
  call.prompt_texts.push_back(joined(parts));
  model.chat->add_stops(model.tokenizer, call.stop);
  set_chat_grammar(body, format, choice, model, call);
  ReplyStyle style = call.reading;
  if (is_raw) call.reading.think_begin = call.reading.think_end = "";
  if (thinking.tokens < 0) return;
  if (!call.with_tools) style.tools = ToolCallStyle::none;
  auto budget = reasoning_budget(style, call.prompt_texts.front(), model.tokenizer,
                                 thinking.tokens > 0 ? model.reasoning_words : std::string());
  if (budget == nullptr) return;
  budget->tokens = thinking.tokens;
  budget->vocabulary = model.vocabulary;
  call.reasoning = std::move(budget);
}

}  // namespace

std::vector<Token> encode_text(std::string_view text, const ApiModel& model, Token end) {
  auto tokens = model.tokenizer.encode(text, {.add_bos = model.tokenizer.add_bos()});
  if (end != kNoToken) tokens.push_back(end);
  return tokens;
}

std::vector<TextPart> render_chat(CallStyle style, JsonNode body, const ApiModel& model) {
  return rendered(style, body, model).parts;
}

std::vector<std::vector<Token>> read_prompts(JsonNode body, std::string_view name,
                                             const ApiModel& model, std::size_t most, Token end,
                                             const std::string& before) {
  const JsonNode found = given_field(body, name);
  constexpr std::string_view kExpected = "a text, an array of ids, or an array of these";
  if (!found || (!found.is_string() && !found.is_array()) ||
      (found.is_array() && found.size() == 0)) {
    field_error(name, kExpected, found);
  }
  bool has_ids = false;
  for (const JsonNode one : found) has_ids |= one.is_number();
  std::vector<std::vector<Token>> prompts;
  const auto add = [&](JsonNode one) {
    prompts.push_back(read_prompt(one, name, model, end, before));
    if (prompts.back().empty()) field_error(name, "expected at least one token in each text");
  };
  // An array of texts is several prompts; an array that contains ids is a single prompt.
  if (found.is_string() || has_ids) {
    add(found);
    return prompts;
  }
  if (found.size() > most) {
    field_error(name, "at most " + std::to_string(most) + " prompts, found " +
                          std::to_string(found.size()));
  }
  for (const JsonNode one : found) {
    if (!one.is_string() && !one.is_array()) field_error(name, kExpected, one);
    add(one);
  }
  return prompts;
}

GenerationCall read_generation_call(CallStyle style, JsonNode body, const ApiModel& model,
                                    GrammarStop stopped) {
  require(body.is_object(), ErrorKind::bad_input, "the request body: expected a JSON object");
  GenerationCall call;
  call.stopped = std::move(stopped);
  call.style = style;
  call.sampling = read_sampling(body, model, call.has_seed);
  call.stop = read_stop(body, model);
  refuse_members(style, body);
  const AnswerFormat format = read_answer_format(body);
  call.top_logprobs = read_logprobs(style, body, model);
  call.stream = flag_field(body, "stream");
  const JsonNode options = object_field(body, "stream_options");
  call.include_usage = flag_field(options, "include_usage");
  const auto choices = whole_field(body, "n", 1, model.most_choices);
  call.choices = static_cast<std::uint32_t>(choices.value_or(1));
  call.return_tokens = flag_field(body, "return_tokens");
  const auto slot = whole_field(body, "id_slot", -1, model.slots - 1);
  if (slot && *slot >= 0) call.slot = static_cast<std::size_t>(*slot);
  if (is_chat(style)) {
    read_chat(body, format, model, call);
  } else {
    set_text_grammar(format, model, call);
    call.prompts = read_prompts(body, "prompt", model,
                                std::min(kMaxPrompts, model.most_replies / call.choices));
    call.echo = flag_field(body, "echo");
  }
  if (flag_field(body, "ignore_eos")) call.banned = call.stop.end_tokens;
  return call;
}

void set_style(ApiModel& api, std::string_view chat_template) {
  api.style = reply_style(chat_template);
  if (api.chat != nullptr) api.takes = takes_of(*api.chat, api.rendering, api.style.tools);
  // Without the word, the template shows any role, and the model does not know this one.
  api.takes.developer &= chat_template.find("developer") != std::string_view::npos;
  // Calls of which the template knows nothing are in Hermes' notation, which the prompt describes.
  if (api.style.tools == ToolCallStyle::none) api.style.tools = ToolCallStyle::hermes;
}

ApiModel api_model_of(const Model& model, const std::string& format) {
  ApiModel api = {.tokenizer = model.tokenizer()};
  if (!format.empty()) {
    api.chat = std::make_shared<const ChatTemplate>(ChatTemplate::by_name(format));
  } else if (model.chat_template().empty()) {
    api.chat_error = "the model has no chat template";
  } else {
    try {
      api.chat = std::make_shared<const ChatTemplate>(
          ChatTemplate::of_model(model.chat_template(), model.file().name()));
    } catch (const Error& refused) {
      api.chat_error = refused.what();
    }
  }
  api.vocabulary = static_cast<std::size_t>(model.config().vocab);
  api.name = model_name_of(model.file().name());
  api.grammars = std::make_shared<GrammarStore>();
  api.rendering = chat_options(model.tokenizer());
  set_style(api, model.chat_template());
  if (!format.empty()) api.takes.tools = api.takes.calls = false;
  api.created = std::time(nullptr);
  api.stop.end_tokens = model.end_tokens();
  api.embedding = model.embedding();
  return api;
}

}  // namespace leq
