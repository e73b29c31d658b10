#include "server/generation_call.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "generate/tool_grammar.h"
#include "server/api_fields.h"
#include "server/tool_choice.h"

namespace leq {
namespace {

constexpr std::int64_t kMostTokensAsked = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kMostStops = 32;
constexpr std::size_t kMostStopBytes = 1024;
constexpr std::size_t kMostPrompts = 256;
constexpr std::size_t kMostBiases = 1024;

// Names that clients of other servers have for a knob, beside its own and its models' name.
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

// {"15043": -100}, or as llama-server has it [[15043, -1.5], [29905, false]].
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
  for (JsonNode one = found.first(); one; one = one.next()) {
    if (found.is_object()) {
      add(parse_int(one.key()), one);
    } else if (one.is_array() && one.size() == 2) {
      add(one.first().is_number() ? one.first().whole() : std::nullopt, one.first().next());
    } else {
      field_error(kName, "pairs of a token and a number", found);
    }
  }
  return biases;
}

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
  if (seed && *seed != -1) {  // -1: a new one, as llama-server has it
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
    if (const auto most = whole_field(body, name, -1, kMostTokensAsked)) stop.max_tokens = *most;
  }
  return stop;
}

// The grammar of a schema in this member, which may be a part of it.
std::shared_ptr<const Grammar> schema_grammar(const ApiModel& model, JsonNode schema,
                                              std::string_view member) {
  const auto compile = [&] { return Grammar::from_json_schema(schema, marked_field(member)); };
  return model.grammars == nullptr ? compile()
                                   : model.grammars->get("schema " + schema.dump(), compile);
}

std::shared_ptr<const Grammar> gbnf_grammar(const ApiModel& model, const std::string& text) {
  const auto compile = [&] { return Grammar::from_gbnf(text, marked_field("grammar")); };
  return model.grammars == nullptr ? compile() : model.grammars->get("gbnf " + text, compile);
}

std::shared_ptr<const Grammar> any_object(const ApiModel& model) {
  return model.grammars == nullptr ? Grammar::any_json_object()
                                   : model.grammars->get("object", Grammar::any_json_object);
}

std::shared_ptr<const Grammar> read_format(JsonNode body, const ApiModel& model) {
  if (const JsonNode schema = given_field(body, "json_schema")) {
    return schema_grammar(model, schema, "json_schema");
  }
  if (const auto gbnf = text_field(body, "grammar"); gbnf && !gbnf->empty()) {
    return gbnf_grammar(model, *gbnf);
  }
  const JsonNode format = object_field(body, "response_format");
  if (!format) return nullptr;
  const std::string type = text_field(format, "type").value_or("");
  if (type == "text") return nullptr;
  if (type == "json_object") {
    const JsonNode schema = object_field(format, "schema");
    return schema ? schema_grammar(model, schema, "response_format") : any_object(model);
  }
  if (type != "json_schema") {
    field_error("response_format", "the type text, json_object or json_schema", format);
  }
  const JsonNode named = object_field(format, "json_schema");
  const JsonNode schema = given_field(named ? named : format, "schema");
  if (!schema) field_error("response_format", "a json_schema with a schema", format);
  return schema_grammar(model, schema, "response_format");
}

// What the reply may be where the model decides whether it calls a tool.
std::shared_ptr<const Grammar> call_grammar(JsonNode body, const ApiModel& model,
                                            const GenerationCall& call) {
  const JsonNode tools = body.find("tools"), several = given_field(body, "parallel_tool_calls");
  const auto count =
      several && !flag_field(body, "parallel_tool_calls") ? CallCount::one : CallCount::any;
  const std::string& prompt = call.prompt_texts.front();
  const auto compile = [&] {
    return tool_grammar(model.style, tools, prompt, count, marked_field("tools"));
  };
  if (model.grammars == nullptr) return compile();
  const std::string kind = std::string("calls ") + (count == CallCount::one ? "one " : "any ") +
                           (begins_with_thoughts(model.style, prompt) ? "thinking " : "");
  return model.grammars->get(kind + tools.dump(), compile);
}

// The number of tokens in "logprobs" (completions, "n_probs"), or "top_logprobs" beside a true
// "logprobs" (chats); below 0 where none are wanted.
int read_logprobs(CallStyle style, JsonNode body, const ApiModel& model) {
  if (style == CallStyle::chat) {
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

std::optional<Token> token_id(JsonNode node, const ApiModel& model) {
  const auto id = node.is_number() ? node.whole() : std::nullopt;
  if (!id || *id < 0 || static_cast<std::size_t>(*id) >= model.vocabulary) return std::nullopt;
  return static_cast<Token>(*id);
}

// One prompt: a text, or a list of ids and texts.
std::vector<Token> read_prompt(JsonNode node, std::string_view name, const ApiModel& model,
                               bool with_bos) {
  const bool bos = with_bos && model.tokenizer.add_bos();
  if (node.is_string()) return model.tokenizer.encode(node.text(), {.add_bos = bos});
  std::vector<Token> tokens;
  for (JsonNode one = node.first(); one; one = one.next()) {
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

// As vLLM has them. The reply goes on from the last message, or a next one is asked for, unless
// that is false.
constexpr std::string_view kGoesOn = "continue_final_message", kAsks = "add_generation_prompt";

bool continues_last_message(JsonNode body, JsonNode messages) {
  if (!flag_field(body, kGoesOn)) return false;
  if (flag_field(body, kAsks)) {
    field_error(kGoesOn, "contradicts add_generation_prompt: leave one out");
  }
  const JsonNode last = messages.last(), role = last.find("role");
  if (!role.is_string() || role.text() != "assistant" || last.find("tool_calls").size() > 0) {
    field_error(kGoesOn, "expected a text of the assistant as the last message");
  }
  return true;
}

void read_chat(JsonNode body, const ApiModel& model, GenerationCall& call) {
  const std::vector<TextPart> parts = render_chat(body, model);
  call.prompts.push_back(model.tokenizer.encode_parts(parts));
  call.prompt_texts.push_back(joined(parts));
  model.chat->add_stops(model.tokenizer, call.stop);
  const ToolChoice choice = read_tool_choice(body);
  call.with_tools = choice.use != ToolChoice::Use::none;
  if (call.with_tools) call.tools = body.find("tools");
  call.use = ReplyUse::read;
  if (choice.use == ToolChoice::Use::forced) {
    if (call.grammar) field_error("response_format", "contradicts tool_choice: leave one out");
    const JsonTree schema = parse_json_tree(choice.schema, marked_field("tools"), kBodyLimits);
    call.grammar = schema_grammar(model, schema.root(), "tools");
    call.use = ReplyUse::forced;
  } else if (call.grammar) {
    call.use = ReplyUse::plain;
  } else if (call.with_tools) {
    call.shown = shown_tokens(model.style, model.tokenizer);
    call.grammar = call_grammar(body, model, call);
  }
}

}  // namespace

std::vector<std::vector<Token>> read_prompts(JsonNode body, std::string_view name,
                                             const ApiModel& model, bool with_bos) {
  const JsonNode found = given_field(body, name);
  constexpr std::string_view kExpected = "a text, an array of ids, or an array of these";
  if (!found || (!found.is_string() && !found.is_array()) || found.size() > kMostTokensAsked) {
    field_error(name, kExpected, found);
  }
  if (found.is_array() && found.size() == 0) field_error(name, kExpected, found);
  bool is_list = false, has_ids = false;
  for (JsonNode one = found.first(); one; one = one.next()) {
    is_list |= one.is_array();
    has_ids |= one.is_number();
  }
  // Texts alone are prompts; texts and ids together are one.
  if (found.is_string() || has_ids) return {read_prompt(found, name, model, with_bos)};
  if (found.size() > kMostPrompts) {
    field_error(name, "at most " + std::to_string(kMostPrompts) + " prompts", found);
  }
  std::vector<std::vector<Token>> prompts;
  for (JsonNode one = found.first(); one; one = one.next()) {
    if (!one.is_string() && !one.is_array()) field_error(name, kExpected, one);
    prompts.push_back(read_prompt(one, name, model, with_bos));
  }
  return prompts;
}

std::vector<TextPart> render_chat(JsonNode body, const ApiModel& model) {
  require(model.chat != nullptr, model.name,
          ": the model has no chat template; start the server with one, or use /v1/completions");
  ChatRequest request;
  request.messages = given_field(body, "messages");
  if (!request.messages || !request.messages.is_array() || request.messages.size() == 0) {
    field_error("messages", "an array of messages", request.messages);
  }
  if (read_tool_choice(body).use != ToolChoice::Use::none) request.tools = body.find("tools");
  request.variables = object_field(body, "chat_template_kwargs");
  ChatOptions options = model.rendering;
  const JsonNode thinking = given_field(request.variables, "enable_thinking");
  if (thinking && thinking.is_boolean()) options.enable_thinking = thinking.boolean();
  const bool goes_on = continues_last_message(body, request.messages);
  const bool asks = !given_field(body, kAsks) || flag_field(body, kAsks);
  options.ask_for_reply = asks && !goes_on;
  std::vector<TextPart> parts = model.chat->render(request, options);
  if (goes_on && !reopen_last_message(parts, request.messages)) {
    field_error(kGoesOn, "the chat template does not end with the last message's text");
  }
  return parts;
}

GenerationCall read_generation_call(CallStyle style, JsonNode body, const ApiModel& model) {
  require(body.is_object(), ErrorKind::bad_input, "the body: expected a JSON object");
  GenerationCall call;
  call.style = style;
  call.sampling = read_sampling(body, model, call.has_seed);
  call.stop = read_stop(body, model);
  call.grammar = read_format(body, model);
  call.top_logprobs = read_logprobs(style, body, model);
  call.stream = flag_field(body, "stream");
  const JsonNode options = object_field(body, "stream_options");
  call.include_usage = flag_field(options, "include_usage");
  const auto choices = whole_field(body, "n", 1, model.most_choices);
  call.choices = static_cast<std::uint32_t>(choices.value_or(1));
  if (flag_field(body, "ignore_eos")) call.banned = call.stop.end_tokens;
  call.return_tokens = flag_field(body, "return_tokens");
  const auto slot = whole_field(body, "id_slot", -1, model.slots - 1);
  if (slot && *slot >= 0) call.slot = static_cast<std::size_t>(*slot);
  if (style == CallStyle::chat) {
    read_chat(body, model, call);
    return call;
  }
  call.prompts = read_prompts(body, "prompt", model, true);
  call.echo = flag_field(body, "echo");
  if (call.echo && call.top_logprobs >= 0) field_error("echo", "is not combined with logprobs");
  return call;
}

}  // namespace leq
