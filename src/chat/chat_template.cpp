#include "chat/chat_template.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/json_repair.h"
#include "base/text.h"
#include "chat/jinja/interpreter.h"

namespace leq {

// A compiled template. Its rendering always terminates, with a text or an Error, within bounded
// steps, memory and depth, whatever the template and the conversation (docs/chat-templates.md).
struct JinjaTemplate {
  std::string source, text;
  jinja::Syntax syntax;
  // Whether the template reads reasoning from blocks of a content (Ministral 3).
  bool reads_reasoning_blocks = false;
  bool reads_thinking = false;  // whether it reads reasoning from `thinking` (gpt-oss)
};

// A named format is a Jinja text in pieces: what it sets, then the texts it shares with others.
// docs/chat-templates.md documents the output.
struct NamedFormat {
  std::string_view name;
  std::string_view end;  // the token that ends a reply
  std::array<std::string_view, 3> jinja;
  bool takes_system = true;
  std::string_view default_system = {};
};

namespace {

// The form in which a template gets the arguments of earlier tool calls: most templates convert an
// object to JSON themselves, some concatenate a string with other text. A string that is no object
// of JSON stays one, as in Jinja, unless it is repaired.
enum class ToolArguments : std::uint8_t { objects, texts, repaired };

struct JinjaInput {
  JsonNode messages = {}, tools = {}, variables = {};  // as in ChatRequest
  std::span<const ChatMessage> plain = {};             // the messages, if `messages` is nothing
  const ChatOptions& options;
  const NamedFormat* format = nullptr;  // set with `plain`
  // Shows reasoning_content as a block of the content: {"type": "thinking", "thinking": ...} before
  // the text block.
  bool reasoning_blocks = false;
  bool thinking = false;  // shows reasoning_content as `thinking`
  ToolArguments arguments = ToolArguments::objects;
  bool null_is_empty = false;  // a content that is null or absent becomes ""
  // Functions get the members that the API allows to leave out; no tools become an empty list.
  bool full_tools = false;
};

// Reads `thinking`: "dropped" removes the reasoning of earlier replies,
// "kept" keeps it after the last question, as in Qwen3's template.
constexpr std::string_view kChatMl = R"jinja(
{%- set roles = {'system': 'system', 'user': 'user', 'assistant': 'assistant'} -%}
{%- set question = namespace(at=messages|length) -%}
{%- for m in messages -%}
  {%- set opens = m.content.startswith('<tool_response>') -%}
  {%- set is_result = opens and m.content.endswith('</tool_response>') -%}
  {%- if m.role == 'user' and not is_result -%}{%- set question.at = loop.index -%}{%- endif -%}
{%- endfor -%}
{%- if default_system and messages[0].role != 'system' -%}
  {{- '<|im_start|>system\n' ~ default_system ~ '<|im_end|>\n' -}}
{%- endif -%}
{%- for m in messages -%}
  {{- '<|im_start|>' ~ roles[m.role] ~ '\n' -}}
  {%- if thinking and m.role == 'assistant' -%}
    {%- set pieces = m.content.split('</think>') -%}
    {%- set reasoning = pieces[0].split('<think>')[-1].strip('\n') if pieces|length > 1 else '' -%}
    {%- set answer = pieces[-1].lstrip('\n') if pieces|length > 1 else m.content -%}
    {%- if thinking == 'kept' and loop.index > question.at and (loop.last or reasoning) -%}
      {{- '<think>\n' ~ reasoning ~ '\n</think>\n\n' ~ answer.lstrip('\n') -}}
    {%- else -%}
      {{- answer -}}
    {%- endif -%}
  {%- else -%}
    {{- m.content -}}
  {%- endif -%}
  {{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
  {%- if thinking and not enable_thinking -%}{{- '<think>\n\n</think>\n\n' -}}{%- endif -%}
{%- endif -%}
)jinja";

// Reads `date`: if it is set, there is always a system message, which begins with the dates.
constexpr std::string_view kLlama3 = R"jinja(
{%- set roles = {'system': 'system', 'user': 'user', 'assistant': 'assistant'} -%}
{%- set dates = '' -%}
{%- if date -%}
  {%- set dates = 'Cutting Knowledge Date: December 2023\nToday Date: ' ~ date ~ '\n\n' -%}
{%- endif -%}
{{- bos_token -}}
{%- if date and messages[0].role != 'system' -%}
  {{- '<|start_header_id|>system<|end_header_id|>\n\n' ~ dates ~ '<|eot_id|>' -}}
{%- endif -%}
{%- for m in messages -%}
  {{- '<|start_header_id|>' ~ roles[m.role] ~ '<|end_header_id|>\n\n' -}}
  {{- (dates if loop.first and m.role == 'system' else '') ~ m.content|trim ~ '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%}
)jinja";

// Sets `turns`, the messages after the system prompt, and `system`, if there is one. With
// `any_order`, roles need not alternate and an empty system prompt is omitted.
constexpr std::string_view kTurns = R"jinja(
{%- set turns = messages[1:] if messages[0].role == 'system' else messages -%}
{%- if messages[0].role == 'system' and not (any_order and messages[0].content == '') -%}
  {%- set system = messages[0].content -%}
{%- endif -%}
{%- macro refuse(number, m, expected) -%}
  {%- set found = 'message ' ~ number ~ " is of the role '" ~ m.role -%}
  {{- raise_exception(found ~ "', expected " ~ expected) -}}
{%- endmacro -%}
{%- for m in turns -%}
  {%- if not any_order and m.role != ['user', 'assistant'][loop.index0 % 2] -%}
    {{- refuse(loop.index, m, 'user, assistant, user, ... after the system prompt') -}}
  {%- elif m.role == 'system' -%}
    {{- refuse(loop.index, m, 'a system prompt in the first message only') -}}
  {%- endif -%}
{%- endfor -%}
)jinja";

constexpr std::string_view kLlama2 = R"jinja(
{%- if system is defined and turns and turns[0].role != 'user' -%}
  {{- refuse(2, turns[0], 'user') -}}
{%- endif -%}
{%- for m in turns -%}
  {%- if m.role == 'user' -%}
    {%- set hosts = loop.first and system is defined -%}
    {%- set prompt = '<<SYS>>\n' ~ system ~ '\n<</SYS>>\n\n' if hosts else '' -%}
    {{- bos_token ~ '[INST] ' ~ (prompt ~ m.content)|trim ~ ' [/INST]' -}}
  {%- else -%}
    {{- ' ' ~ m.content|trim ~ ' ' ~ eos_token -}}
  {%- endif -%}
{%- endfor -%}
)jinja";

// Reads `user` and `reply`, the texts around messages; `trims`, whether replies are trimmed; and
// `host`: the system prompt is in the "first" user message, else in the last message if it is the
// user's.
constexpr std::string_view kMistral = R"jinja(
{%- set host_index = 1 if host == 'first' else turns|length -%}
{{- bos_token -}}
{%- for m in turns -%}
  {%- if m.role == 'user' -%}
    {%- set prompt = system ~ '\n\n' if system is defined and loop.index == host_index else '' -%}
    {{- user[0] ~ prompt ~ m.content ~ user[1] -}}
  {%- else -%}
    {{- reply[0] ~ (m.content|trim if trims else m.content) ~ reply[1] -}}
  {%- endif -%}
{%- endfor -%}
)jinja";

// As Mistral's own library: adjacent messages of one role are joined, and no reply is empty. Reads
// `gap`, which joins them; `user`, and `host`: the system prompts are messages of their own
// ("none"), or joined in the "first" or "last" user message.
constexpr std::string_view kMistralCommon = R"jinja(
{%- set prompts = messages|selectattr('role', 'equalto', 'system') -%}
{%- set system = prompts|map(attribute='content')|join(gap) -%}
{%- set turns = messages -%}
{%- if host != 'none' -%}
  {%- set turns = messages|rejectattr('role', 'equalto', 'system')|list -%}
{%- endif -%}
{%- set joined = namespace(count=0, host=0) -%}
{%- for m in turns if host == 'last' -%}
  {%- if m.role == 'user' and (loop.first or loop.previtem.role != 'user') -%}
    {%- set joined.host = loop.index -%}
  {%- endif -%}
{%- endfor -%}
{{- bos_token -}}
{%- for m in turns -%}
  {%- set begins = loop.first or m.role == 'system' or loop.previtem.role != m.role -%}
  {%- set ends = loop.last or m.role == 'system' or loop.nextitem.role != m.role -%}
  {%- if begins -%}{%- set joined.count = joined.count + 1 -%}{%- endif -%}
  {%- if m.role == 'system' -%}
    {%- if not loop.first and loop.previtem.role == 'assistant' -%}
      {%- set found = 'message ' ~ joined.count ~ " is of the role 'system'" -%}
      {{- raise_exception(found ~ ', expected user after a reply') -}}
    {%- endif -%}
    {{- '[SYSTEM_PROMPT]' ~ m.content ~ '[/SYSTEM_PROMPT]' -}}
  {%- elif m.role == 'user' -%}
    {%- set is_host = loop.first if host == 'first' else loop.index == joined.host -%}
    {%- set prompt = system ~ '\n\n' if system and is_host else '' -%}
    {{- (user[0] ~ prompt if begins else gap) ~ m.content ~ (user[1] if ends else '') -}}
  {%- else -%}
    {%- if loop.first -%}
      {{- raise_exception("message 1 is of the role 'assistant', expected user") -}}
    {%- elif begins and ends and m.content == '' -%}
      {{- raise_exception('the reply in message ' ~ joined.count ~ ' is empty') -}}
    {%- endif -%}
    {{- ('' if begins else gap) ~ m.content ~ (eos_token if ends else '') -}}
  {%- endif -%}
{%- endfor -%}
)jinja";

constexpr std::string_view kMistralV7 = R"jinja(
{{- bos_token -}}
{%- for m in messages -%}
  {%- set marks = {'system': ['[SYSTEM_PROMPT] ', '[/SYSTEM_PROMPT]'],
                   'user': ['[INST] ', '[/INST]'],
                   'assistant': [' ', eos_token]}[m.role] -%}
  {{- marks[0] ~ m.content ~ marks[1] -}}
{%- endfor -%}
)jinja";

constexpr NamedFormat kFormats[] = {
    {"chatml", "<|im_end|>", {kChatMl}},
    {"qwen2.5",
     "<|im_end|>",
     {kChatMl},
     true,
     "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    {"qwen3", "<|im_end|>", {"{% set thinking = 'kept' %}", kChatMl}},
    {"qwen3-simple", "<|im_end|>", {"{% set thinking = 'dropped' %}", kChatMl}},
    {"llama2", "{eos}", {kTurns, kLlama2}},
    {"llama2-any-order", "{eos}", {"{% set any_order = true %}", kTurns, kLlama2}},
    {"llama3", "<|eot_id|>", {kLlama3}},
    {"llama3.1", "<|eot_id|>", {"{% set date = date_string|default('26 Jul 2024') %}", kLlama3}},
    {"llama3.2", "<|eot_id|>", {"{% set date = date_string|default(today) %}", kLlama3}},
    {"mistral-v0.1",
     "{eos}",
     {"{% set user = ['[INST] ', ' [/INST]'] %}{% set reply = ['', eos_token ~ ' '] %}", kTurns,
      kMistral},
     false},
    {"mistral-v0.2",
     "{eos}",
     {"{% set user = ['[INST] ', ' [/INST]'] %}{% set reply = ['', eos_token] %}", kTurns,
      kMistral},
     false},
    {"mistral-v1",
     "{eos}",
     {"{% set user = [' [INST] ', ' [/INST]'] %}{% set reply = [' ', eos_token] %}"
      "{% set host = 'first' %}",
      kTurns, kMistral}},
    {"mistral-v1-common",
     "{eos}",
     {"{% set user = ['[INST] ', ' [/INST]'] %}{% set host = 'first' %}", kMistralCommon}},
    {"mistral-v3",
     "{eos}",
     {"{% set user = ['[INST] ', '[/INST]'] %}{% set reply = [' ', eos_token] %}"
      "{% set trims = true %}",
      kTurns, kMistral}},
    {"mistral-v3-tekken",
     "{eos}",
     {"{% set user = ['[INST]', '[/INST]'] %}{% set reply = ['', eos_token] %}", kTurns, kMistral}},
    {"ministral-8b",
     "{eos}",
     {"{% set user = ['[INST]', '[/INST]'] %}{% set reply = [' ', eos_token] %}"
      "{% set trims = true %}",
      kTurns, kMistral}},
    {"mistral-v3-common",
     "{eos}",
     {"{% set user = ['[INST]', '[/INST]'] %}{% set host = 'last' %}", kMistralCommon}},
    {"mistral-v7", "{eos}", {kMistralV7}},
    {"mistral-v7-common",
     "{eos}",
     {"{% set user = ['[INST]', '[/INST]'] %}{% set host = 'none' %}", kMistralCommon}},
};

using jinja::Context;
using jinja::Dict;
using jinja::Text;
using jinja::Value;

constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;

// The recursion is bounded, because JSON is nested at most kMaxJsonDepth deep.
Value value_of(Context& context, JsonNode node) {
  if (!node || node.is_null()) return jinja::none_value();
  if (node.is_boolean()) return jinja::of(node.boolean());
  if (node.is_string()) return context.heap.text(Text::foreign(node.text()));
  if (node.is_number()) {
    const auto whole = node.is_integer() ? node.whole() : std::nullopt;
    return whole ? jinja::of(*whole) : jinja::of(node.number());
  }
  if (node.is_array()) {
    std::vector<Value> items;
    for (const JsonNode e : node) items.push_back(value_of(context, e));
    return context.heap.list(std::move(items));
  }
  Dict dict;
  for (const JsonNode e : node) {
    dict.items.emplace_back(context.heap.text(Text::foreign(e.key())), value_of(context, e));
  }
  return context.heap.dict(std::move(dict));
}

const Value* member(Context& context, const Value& value, std::string_view key) {
  return value.is_dict() ? value.dict->find(context, key) : nullptr;
}

// The object with the member, which is added if it is absent.
Value with_member(Context& context, const Value& object, std::string_view key, const Value& value) {
  Dict changed = *object.dict;
  bool found = false;
  for (auto& [name, held] : changed.items) {
    if (!name.is_text() || name.bytes() != key) continue;
    held = value;
    found = true;
  }
  if (!found) changed.items.emplace_back(context.heap.text(Text::foreign(key)), value);
  return context.heap.dict(std::move(changed));
}

// Joins a content [{"type": "text", "text": ...}, ...] to one text, one part per line, because
// templates treat such lists differently and many ignore them.
Value plain_content(Context& context, const Value& content, std::string_view source) {
  if (!content.is_list()) return content;
  Text text;
  for (const Value& part : content.list->items) {
    const Value* type = member(context, part, "type");
    const Value* words = member(context, part, "text");
    require(type != nullptr && type->is_text() && type->bytes() == "text" && words != nullptr &&
                words->is_text(),
            source,
            ": a message has a part that is no text; only {\"type\": \"text\"} is supported");
    if (&part != content.list->items.data()) text.append(Text::foreign("\n"));
    text.append(*words->text);
  }
  return context.heap.text(std::move(text));
}

Value call_with_arguments(Context& context, const Value& call, ToolArguments style) {
  const Value* function = member(context, call, "function");
  const Value* arguments = function == nullptr ? nullptr : member(context, *function, "arguments");
  if (arguments == nullptr) return call;
  Value shown = *arguments;
  if (style == ToolArguments::texts && shown.is_dict()) {
    shown = context.heap.text(Text::foreign(jinja::to_json(context, shown, {})));
  } else if (style == ToolArguments::repaired && !shown.is_dict()) {
    const Json tree = repaired_object(shown.is_text() ? shown.bytes() : "");
    shown = value_of(context, tree);
  } else if (style == ToolArguments::objects && shown.is_text()) {
    try {
      const bool none = trim(shown.bytes()).empty();
      const Json tree = none ? Json::object() : parse_json(shown.bytes(), "arguments");
      if (tree.is_object()) shown = value_of(context, tree);
    } catch (const Error&) {
      // On invalid JSON the template gets the string unchanged.
    }
  }
  return with_member(context, call, "function",
                     with_member(context, *function, "arguments", shown));
}

Value with_content(Context& context, const Value& message) {
  const Value* content = member(context, message, "content");
  if (content != nullptr && !content->is_none()) return message;
  return with_member(context, message, "content", context.heap.text(Text::foreign("")));
}

// The tools, with a description and parameters in each function.
Value full_tools(Context& context, const Value& tools) {
  static const Json kOptional = parse_json(
      R"({"description":"","parameters":{"type":"object","properties":{}}})", "a function");
  if (tools.is_none()) return context.heap.list({});
  std::vector<Value> full;
  if (!tools.is_list()) return tools;
  for (const Value& tool : tools.list->items) {
    const Value* function = member(context, tool, "function");
    if (function == nullptr || !function->is_dict()) return tools;
    Value whole = *function;
    for (const JsonNode one : JsonNode(kOptional)) {
      const Value* known = member(context, whole, one.key());
      if (known != nullptr && !known->is_none()) continue;
      whole = with_member(context, whole, one.key(), value_of(context, one));
    }
    full.push_back(with_member(context, tool, "function", whole));
  }
  return context.heap.list(std::move(full));
}

Value with_reasoning_block(Context& context, const Value& message) {
  const Value* reasoning = member(context, message, "reasoning_content");
  const Value* content = member(context, message, "content");
  if (reasoning == nullptr || !reasoning->is_text() || reasoning->bytes().empty()) return message;
  if (content == nullptr || !content->is_text()) return message;
  const auto block = [&](const char* kind, const Value& text) {
    Dict dict;
    const auto word = [&](std::string_view name) { return context.heap.text(Text::foreign(name)); };
    dict.items.emplace_back(word("type"), word(kind));
    dict.items.emplace_back(word(kind), text);
    return context.heap.dict(std::move(dict));
  };
  std::vector<Value> blocks = {block("thinking", *reasoning)};
  if (!content->bytes().empty()) blocks.push_back(block("text", *content));
  return with_member(context, message, "content", context.heap.list(std::move(blocks)));
}

// The template of gpt-oss takes either a text or reasoning beside a call: a text joins the latter.
Value with_thinking(Context& context, Value message) {
  const Value *reasoning = member(context, message, "reasoning_content"),
              *content = member(context, message, "content"),
              *calls = member(context, message, "tool_calls");
  const auto is_said = [](const Value* value) {
    return value != nullptr && value->is_text() && !value->bytes().empty();
  };
  if (!is_said(reasoning) || member(context, message, "thinking") != nullptr) return message;
  std::string text(reasoning->bytes());
  if (is_said(content) && calls != nullptr && calls->is_list() && !calls->list->items.empty()) {
    text += "\n" + std::string(content->bytes());
    message = with_member(context, message, "content", context.heap.text(Text::foreign("")));
  }
  return with_member(context, message, "thinking", context.heap.text(Text::foreign(text)));
}

Value message_value(Context& context, JsonNode node, const JinjaInput& input) {
  Value message = value_of(context, node);
  require(message.is_dict(), context.source, ": a message is not an object");
  if (input.null_is_empty) message = with_content(context, message);
  if (const Value* content = member(context, message, "content")) {
    message =
        with_member(context, message, "content", plain_content(context, *content, context.source));
  }
  if (input.reasoning_blocks) message = with_reasoning_block(context, message);
  if (input.thinking) message = with_thinking(context, message);
  const Value* calls = member(context, message, "tool_calls");
  if (calls == nullptr || !calls->is_list()) return message;
  std::vector<Value> changed;
  for (const Value& call : calls->list->items) {
    changed.push_back(call_with_arguments(context, call, input.arguments));
  }
  return with_member(context, message, "tool_calls", context.heap.list(std::move(changed)));
}

Value messages_value(Context& context, const JinjaInput& input) {
  std::vector<Value> messages;
  const auto foreign = [&](std::string_view text) {
    return context.heap.text(Text::foreign(text));
  };
  for (const ChatMessage& message : input.plain) {
    messages.push_back(context.heap.dict({{{foreign("role"), foreign(message.role)},
                                           {foreign("content"), foreign(message.content)}}}));
  }
  if (!messages.empty()) return context.heap.list(std::move(messages));
  require(input.messages.is_array(), context.source, ": the messages are no list");
  for (const JsonNode message : input.messages) {
    messages.push_back(message_value(context, message, input));
  }
  return context.heap.list(std::move(messages));
}

jinja::Variables variables_of(Context& context, const JinjaInput& input) {
  const ChatOptions& options = input.options;
  const auto own = [&](std::string_view text) { return context.heap.text(Text::own(text)); };
  jinja::Variables variables = {
      {"messages", messages_value(context, input)},
      {"tools", input.full_tools ? full_tools(context, value_of(context, input.tools))
                                 : value_of(context, input.tools)},
      {"documents", jinja::none_value()},
      {"bos_token", own(options.bos)},
      {"eos_token", own(options.eos)},
      {"add_generation_prompt", jinja::of(options.ask_for_reply)},
      {"enable_thinking", jinja::of(options.enable_thinking)},
  };
  const auto foreign = [&](std::string_view text) {
    return context.heap.text(Text::foreign(text));
  };
  if (input.format != nullptr) {
    // Dates belong to the format; a system prompt and what joins messages to the conversation.
    if (!options.date.empty()) variables.emplace_back("date_string", own(options.date));
    variables.emplace_back("today", own(jinja::time_text(context, "%d %b %Y")));
    variables.emplace_back("default_system", foreign(input.format->default_system));
    variables.emplace_back("gap", foreign("\n\n"));
  } else if (!options.date.empty()) {
    variables.emplace_back("date_string", foreign(options.date));
  }
  for (const JsonNode v : input.variables) {
    const Value value = value_of(context, v);
    const auto known = std::ranges::find(variables, std::string_view(v.key()),
                                         [](const auto& entry) { return entry.first; });
    if (known != variables.end()) {
      known->second = value;
    } else {
      variables.emplace_back(v.key(), value);
    }
  }
  return variables;
}

std::vector<TextPart> parts_of(const Text& text) {
  std::vector<TextPart> parts;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (parts.empty() || parts.back().special != text.is_own(at)) {
      parts.push_back({.text = {}, .special = text.is_own(at)});
    }
    parts.back().text += text.bytes()[at];
  }
  return parts;
}

std::shared_ptr<const JinjaTemplate> compiled(std::string_view text, std::string_view source) {
  require(text.size() <= kMaxTemplateBytes, source, ": a chat template of ", text.size(),
          " bytes, at most ", kMaxTemplateBytes, " are accepted");
  return std::make_shared<const JinjaTemplate>(
      JinjaTemplate{std::string(source), std::string(text), jinja::parse(text, source),
                    text.find("['thinking']") != std::string_view::npos,
                    text.find("message.thinking") != std::string_view::npos});
}

// Parts that the template wrote itself may contain special tokens; parts from the conversation may
// not. Throws Error naming the source and the line.
std::vector<TextPart> run(const JinjaTemplate& jinja, const JinjaInput& input) {
  Context context;
  context.source = jinja.source;
  const std::time_t now = std::time(nullptr);
  localtime_r(&now, &context.now);
  context.now = input.options.now.value_or(context.now);
  if (input.format != nullptr) context.refusal = ": ";
  return parts_of(jinja::run(jinja.syntax, variables_of(context, input), context));
}

void check_roles(const NamedFormat& format, std::span<const ChatMessage> messages) {
  constexpr std::array<std::string_view, 3> kRoles = {"system", "user", "assistant"};
  for (std::size_t i = 0; i < messages.size(); ++i) {
    require(std::ranges::find(kRoles, messages[i].role) != kRoles.end(), "chat template ",
            format.name, ": message ", i + 1, " is of the role '", printable(messages[i].role),
            "', expected system, user or assistant");
  }
  require(format.takes_system || messages.front().role != "system", "chat template ", format.name,
          ": it has no system prompt; say it in the first message, or choose another format with ",
          Setting{"chat_template"});
}

// Returns the messages if a named format can write them; throws Error for tools and the like.
std::vector<ChatMessage> plain_messages(JsonNode messages, std::string_view format) {
  std::vector<ChatMessage> plain;
  for (const JsonNode message : messages) {
    const JsonNode role = message.find("role"), content = message.find("content");
    const std::string place =
        "chat template " + std::string(format) + ": message " + std::to_string(plain.size());
    require(role.is_string(), place, ": expected a role");
    require(message.find("tool_calls").size() == 0 && role.text() != "tool", place,
            ": tools are not supported by this format; use the model's own template");
    std::string text;
    if (content.is_array()) {
      for (const JsonNode part : content) {
        const JsonNode words = part.find("text");
        require(words.is_string(), place, ": a part that is no text");
        text += (text.empty() ? "" : "\n") + words.text();
      }
    } else if (content && !content.is_null()) {
      require(content.is_string(), place, ": expected content that is text");
      text = content.text();
    }
    plain.push_back({role.text(), std::move(text)});
  }
  return plain;
}

// Some templates concatenate a content, the arguments of earlier calls or a tool's description with
// text, or expect tools. If plain rendering fails, variants with strings are tried, then with what
// can be read of arguments that are invalid. If all fail, the first error is reported.
std::vector<TextPart> render_adapted(const JinjaTemplate& jinja, JinjaInput input) {
  bool has_calls = false, has_no_content = false;
  for (const JsonNode message : input.messages) {
    const JsonNode content = message.find("content");
    has_calls = has_calls || message.find("tool_calls").size() > 0;
    has_no_content = has_no_content || !content || content.is_null();
  }
  std::vector<JinjaInput> variants = {input};
  const auto add = [&](bool useful, const auto& change) {
    for (std::size_t i = 0, count = useful ? variants.size() : 0; i < count; ++i) {
      variants.push_back(variants[i]);
      change(variants.back());
    }
  };
  add(has_calls, [](JinjaInput& one) { one.arguments = ToolArguments::texts; });
  add(has_no_content, [](JinjaInput& one) { one.null_is_empty = true; });
  add(true, [](JinjaInput& one) { one.full_tools = true; });
  for (std::size_t i = 0, count = has_calls ? variants.size() : 0; i < count; ++i) {
    if (variants[i].arguments != ToolArguments::objects) continue;
    variants.push_back(variants[i]);
    variants.back().arguments = ToolArguments::repaired;
  }
  std::optional<Error> first;
  for (const JinjaInput& variant : variants) {
    try {
      return run(jinja, variant);
    } catch (const Error& error) {
      if (!first) first = error;
    }
  }
  throw *first;
}

// The special token that the template writes after a past reply; nullopt if it writes none.
std::optional<Token> token_after_reply(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  constexpr std::string_view kReply = "leq";
  const std::vector<ChatMessage> probe = {{"user", "?"}, {"assistant", std::string(kReply)}};
  ChatOptions options = chat_options(tokenizer);
  options.ask_for_reply = false;
  std::vector<TextPart> parts;
  try {
    parts = chat.render(probe, options);
  } catch (const Error&) {
    return std::nullopt;
  }
  const auto reply = std::find_if(parts.rbegin(), parts.rend(), [&](const TextPart& part) {
    return !part.special && part.text == kReply;
  });
  if (reply == parts.rend() || reply == parts.rbegin()) return std::nullopt;
  for (const Token id : tokenizer.encode(std::prev(reply)->text, {})) {
    if (tokenizer.type(id) == TokenType::control) return id;
  }
  return std::nullopt;
}

}  // namespace

ChatOptions chat_options(const Tokenizer& tokenizer) {
  const auto text_of = [&](Token id) {
    return id == kNoToken ? std::string() : tokenizer.decode(std::span(&id, 1), true);
  };
  ChatOptions options;
  options.bos = text_of(tokenizer.bos());
  options.eos = text_of(tokenizer.eos());
  return options;
}

ChatTemplate ChatTemplate::of_model(std::string_view jinja, std::string_view source) {
  ChatTemplate chat;
  chat.jinja_ = compiled(jinja, source);
  return chat;
}

ChatTemplate ChatTemplate::by_name(std::string_view name) {
  const auto* format = std::ranges::find(kFormats, name, &NamedFormat::name);
  if (format == std::end(kFormats)) {
    std::vector<std::string> known;
    for (const NamedFormat& row : kFormats) known.emplace_back(row.name);
    fail(Setting{"chat_template"}, ": there is no format '", printable(name),
         "', expected one of: ", join(known));
  }
  std::string jinja;
  for (const std::string_view piece : format->jinja) jinja += piece;
  ChatTemplate chat;
  chat.format_ = format;
  chat.jinja_ = compiled(jinja, "chat template " + std::string(name));
  return chat;
}

std::vector<std::string_view> ChatTemplate::names() {
  std::vector<std::string_view> names;
  for (const NamedFormat& format : kFormats) names.push_back(format.name);
  return names;
}

std::string_view ChatTemplate::name() const {
  return format_ != nullptr ? format_->name : "the model's own";
}

bool ChatTemplate::names_role(std::string_view role) const {
  if (role.empty()) return false;
  const std::string_view text = jinja_->text;
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = quote + std::string(role) + quote;
    for (std::size_t at = text.find(quoted); at < text.size(); at = text.find(quoted, at + 1)) {
      // tool['function'] names a member.
      const bool is_member =
          text.substr(0, at).ends_with('[') && text.substr(at + quoted.size()).starts_with(']');
      if (!is_member) return true;
    }
  }
  return false;
}

std::vector<TextPart> ChatTemplate::render(std::span<const ChatMessage> messages,
                                           const ChatOptions& options) const {
  if (format_ == nullptr) {
    Json list = Json::array();
    for (const ChatMessage& message : messages) {
      list.push_back({{"content", message.content}, {"role", message.role}});
    }
    const Json valid = parse_json(list.dump_any(), "the conversation");  // valid UTF-8
    return render(ChatRequest{.messages = valid}, options);
  }
  require(!messages.empty(), "chat template ", format_->name, ": the conversation is empty");
  check_roles(*format_, messages);
  return run(*jinja_, {.plain = messages, .options = options, .format = format_});
}

std::vector<TextPart> ChatTemplate::render(const ChatRequest& request,
                                           const ChatOptions& options) const {
  require(request.messages.size() > 0, "the conversation is empty");
  if (format_ != nullptr) {
    require(request.tools.size() == 0, "chat template ", format_->name,
            ": tools are not supported by this format; use the model's own template");
    return render(plain_messages(request.messages, format_->name), options);
  }
  return render_adapted(*jinja_, {.messages = request.messages,
                                  .tools = request.tools,
                                  .variables = request.variables,
                                  .options = options,
                                  .reasoning_blocks = jinja_->reads_reasoning_blocks,
                                  .thinking = jinja_->reads_thinking});
}

void ChatTemplate::add_stops(const Tokenizer& tokenizer, StopRules& rules) const {
  if (format_ == nullptr) {
    const auto id = token_after_reply(*this, tokenizer);
    if (id && !rules.is_end_token(*id)) rules.end_tokens.push_back(*id);
    // gpt-oss ends a call with another token than an answer.
    const auto call = tokenizer.special_id("<|call|>");
    if (id && id == tokenizer.special_id("<|return|>") && call && !rules.is_end_token(*call)) {
      rules.end_tokens.push_back(*call);
    }
  } else if (format_->end == "{eos}") {
    if (tokenizer.eos() != kNoToken) rules.end_tokens.push_back(tokenizer.eos());
  } else if (const auto id = tokenizer.special_id(format_->end)) {
    rules.end_tokens.push_back(*id);
  } else {
    rules.strings.emplace_back(format_->end);
  }
}

bool reopen_last_message(std::vector<TextPart>& parts, JsonNode messages) {
  JsonNode content = messages.last().find("content");
  if (content.is_array()) content = content.last().find("text");
  const auto written = std::find_if(parts.rbegin(), parts.rend(),
                                    [](const TextPart& part) { return !part.special; });
  if (!content.is_string() || written == parts.rend()) return false;
  // Templates may trim the content and remove reasoning in front of it.
  const std::string_view wanted = trim(content.text()), found = trim(written->text);
  const bool is_it = found.ends_with(wanted) || wanted.ends_with(found);
  if (wanted.empty() || found.empty() || !is_it) return false;
  parts.erase(written.base(), parts.end());
  return true;
}

std::string joined(std::span<const TextPart> parts) {
  std::string text;
  for (const TextPart& part : parts) text += part.text;
  return text;
}

}  // namespace leq
