#include "chat/jinja/template.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "chat/jinja/interpreter.h"

namespace leq {
namespace {

using jinja::Context;
using jinja::Dict;
using jinja::Text;
using jinja::Value;

constexpr std::size_t kMostTemplateBytes = std::size_t{1} << 20;

// The recursion is bounded, because JSON is parsed to a depth of kMaxJsonDepth.
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

const Value* member(const Value& value, std::string_view key) {
  return value.is_dict() ? value.dict->find(key) : nullptr;
}

Value with_member(Context& context, const Value& object, std::string_view key, const Value& value) {
  Dict changed = *object.dict;
  for (auto& [name, held] : changed.items) {
    if (name.is_text() && name.bytes() == key) held = value;
  }
  return context.heap.dict(std::move(changed));
}

// Joins a content [{"type": "text", "text": ...}, ...] to one text, one part per line, because
// templates treat such lists differently and many ignore them.
Value plain_content(Context& context, const Value& content, std::string_view source) {
  if (!content.is_list()) return content;
  Text text;
  for (const Value& part : content.list->items) {
    const Value* type = member(part, "type");
    const Value* words = member(part, "text");
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
  const Value* function = member(call, "function");
  const Value* arguments = function == nullptr ? nullptr : member(*function, "arguments");
  if (arguments == nullptr) return call;
  Value shown = *arguments;
  if (style == ToolArguments::texts && shown.is_dict()) {
    shown = context.heap.text(Text::foreign(jinja::to_json(context, shown, {})));
  } else if (style == ToolArguments::objects && shown.is_text()) {
    try {
      const Json tree = parse_json(shown.bytes(), "arguments");
      if (tree.is_object()) shown = value_of(context, tree);
    } catch (const Error&) {
      // On invalid JSON the template gets the string unchanged.
    }
  }
  return with_member(context, call, "function",
                     with_member(context, *function, "arguments", shown));
}

Value with_content(Context& context, const Value& message) {
  const Value* content = member(message, "content");
  const Value empty = context.heap.text(Text::foreign(""));
  if (content != nullptr && !content->is_none()) return message;
  if (content != nullptr) return with_member(context, message, "content", empty);
  Dict longer = *message.dict;
  longer.items.emplace_back(context.heap.text(Text::foreign("content")), empty);
  return context.heap.dict(std::move(longer));
}

Value with_thought_block(Context& context, const Value& message) {
  const Value* thoughts = member(message, "reasoning_content");
  const Value* content = member(message, "content");
  if (thoughts == nullptr || !thoughts->is_text() || thoughts->bytes().empty()) return message;
  if (content == nullptr || !content->is_text()) return message;
  const auto block = [&](const char* kind, const Value& text) {
    Dict dict;
    const auto word = [&](std::string_view name) { return context.heap.text(Text::foreign(name)); };
    dict.items.emplace_back(word("type"), word(kind));
    dict.items.emplace_back(word(kind), text);
    return context.heap.dict(std::move(dict));
  };
  std::vector<Value> blocks = {block("thinking", *thoughts)};
  if (!content->bytes().empty()) blocks.push_back(block("text", *content));
  return with_member(context, message, "content", context.heap.list(std::move(blocks)));
}

Value message_value(Context& context, JsonNode node, const JinjaInput& input) {
  Value message = value_of(context, node);
  require(message.is_dict(), context.source, ": a message is not an object");
  if (input.null_is_empty) message = with_content(context, message);
  if (const Value* content = member(message, "content")) {
    message =
        with_member(context, message, "content", plain_content(context, *content, context.source));
  }
  if (input.thought_blocks) message = with_thought_block(context, message);
  const Value* calls = member(message, "tool_calls");
  if (calls == nullptr || !calls->is_list()) return message;
  std::vector<Value> changed;
  for (const Value& call : calls->list->items) {
    changed.push_back(call_with_arguments(context, call, input.arguments));
  }
  return with_member(context, message, "tool_calls", context.heap.list(std::move(changed)));
}

Value messages_value(Context& context, const JinjaInput& input) {
  require(input.messages.is_array(), context.source, ": the messages are no list");
  std::vector<Value> messages;
  for (const JsonNode message : input.messages) {
    messages.push_back(message_value(context, message, input));
  }
  return context.heap.list(std::move(messages));
}

jinja::Variables variables_of(Context& context, const JinjaInput& input) {
  const auto own = [&](std::string_view text) { return context.heap.text(Text::own(text)); };
  jinja::Variables variables = {
      {"messages", messages_value(context, input)},
      {"tools", value_of(context, input.tools)},
      {"documents", jinja::none_value()},
      {"bos_token", own(input.bos)},
      {"eos_token", own(input.eos)},
      {"add_generation_prompt", jinja::of(input.add_generation_prompt)},
      {"enable_thinking", jinja::of(input.enable_thinking)},
  };
  if (!input.date.empty()) {
    variables.emplace_back("date_string", context.heap.text(Text::foreign(input.date)));
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

std::string_view checked_size(std::string_view text, std::string_view source) {
  require(text.size() <= kMostTemplateBytes, source, ": a chat template of ", text.size(),
          " bytes, at most ", kMostTemplateBytes, " are accepted");
  return text;
}

}  // namespace

JinjaTemplate::JinjaTemplate(std::string_view text, std::string_view source)
    : source_(source),
      syntax_(jinja::parse(checked_size(text, source), source)),
      reads_thought_blocks_(text.find("['thinking']") != std::string_view::npos) {}

std::vector<TextPart> JinjaTemplate::render(const JinjaInput& input) const {
  Context context;
  context.source = source_;
  context.now = input.now;
  return parts_of(jinja::run(syntax_, variables_of(context, input), context));
}

}  // namespace leq
