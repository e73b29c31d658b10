#include "chat/tool_calls.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "chat/reply_text.h"
#include "grammar/json_schema.h"

namespace leq {
namespace {

// The members of {"name": ..., "arguments": {...}}, as far as the text so far contains them.
struct CallHead {
  enum class State : std::uint8_t {
    open,     // the name or the arguments are still incomplete
    bad,      // the text is not a call
    streams,  // the arguments have begun
    whole     // the object is complete
  } state = State::open;
  std::string name = {};
  std::size_t arguments = 0;  // streams: offset of the arguments
  std::size_t end = 0;        // whole: offset after the object
  std::string text = {};      // whole: the arguments
};

// The string literal at the beginning of `text`, with its quotes; nullopt if it is incomplete.
std::optional<std::string_view> literal_at(std::string_view text) {
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return text.substr(0, i + 1);
    }
  }
  return std::nullopt;
}

// Returns nullopt if the text is not JSON.
std::optional<Json> json_of(std::string_view text) {
  try {
    return parse_json(text, "reply");
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The end of the JSON value at `at`; nullopt if the value is incomplete.
std::optional<std::size_t> json_value_end(std::string_view text, std::size_t at) {
  if (text[at] == '"') {
    const auto literal = literal_at(text.substr(at));
    if (!literal) return std::nullopt;
    return at + literal->size();
  }
  if (text[at] == '{' || text[at] == '[') {
    JsonDepth depth;
    const std::size_t length = depth.take(text.substr(at));
    if (!depth.closed()) return std::nullopt;
    return at + length;
  }
  const std::size_t end = text.find_first_of(",}] \t\r\n", at);
  if (end == std::string_view::npos) return std::nullopt;
  return end;
}

CallHead read_call_head(std::string_view text) {
  CallHead head;
  const auto skip = [&](std::size_t at, std::string_view characters) {
    return std::min(text.find_first_not_of(characters, at), text.size());
  };
  std::size_t at = skip(0, kBlanks);
  if (at == text.size()) return head;
  if (text[at] != '{') return {CallHead::State::bad};
  ++at;
  std::optional<std::string> arguments;
  while (true) {
    at = skip(at, " \t\r\n,");
    if (at == text.size()) return head;
    if (text[at] == '}') {
      if (head.name.empty()) return {CallHead::State::bad};
      head.state = CallHead::State::whole;
      head.end = at + 1;
      head.text = arguments.value_or("{}");
      return head;
    }
    if (text[at] != '"') return {CallHead::State::bad};
    const auto key = literal_at(text.substr(at));
    if (!key) return head;
    at = skip(at + key->size(), kBlanks);
    if (at == text.size()) return head;
    if (text[at] != ':') return {CallHead::State::bad};
    at = skip(at + 1, kBlanks);
    if (at == text.size()) return head;
    const bool is_arguments = *key == "\"arguments\"" || *key == "\"parameters\"";
    if (is_arguments && !head.name.empty() && text[at] == '{') {
      head.state = CallHead::State::streams;
      head.arguments = at;
      return head;
    }
    const auto end = json_value_end(text, at);
    if (!end) return head;
    const std::string_view value = text.substr(at, *end - at);
    const auto json = json_of(value);
    if (*key == "\"name\"") {
      if (!json || !json->is_string() || json->text().empty()) return {CallHead::State::bad};
      head.name = json->text();
    } else if (is_arguments) {
      // Some models write the arguments object as a string that contains JSON.
      arguments = json && json->is_string() ? json->text() : std::string(value);
      if (!arguments->starts_with('{')) arguments = "{}";
    }
    at = *end;
  }
}

}  // namespace

std::size_t json_string_end(std::string_view text) {
  const auto literal = literal_at(text);
  return literal ? literal->size() : std::string_view::npos;
}

std::size_t JsonDepth::take(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      closed_ = depth_ <= 1;
      if (closed_) return i + 1;
      --depth_;
    }
  }
  return text.size();
}
ReplyStyle reply_style(std::string_view chat_template) {
  const auto has = [&](std::string_view mark) {
    return chat_template.find(mark) != std::string_view::npos;
  };
  ReplyStyle style;
  if (has(kHarmonyChannel) && has(kHarmonyMessage)) {
    return {.tools = ToolCallStyle::harmony,
            .think_begin = "<|channel|>analysis<|message|>",
            .think_end = std::string(kHarmonyEnd),
            .channels = true};
  }
  if (has(kGemmaCall) && has(kGemmaQuote)) {
    style.tools = ToolCallStyle::gemma;
  } else if (has("tool▁calls▁begin")) {
    style.tools = ToolCallStyle::deepseek;
  } else if (has("[TOOL_CALLS]")) {
    style.tools = ToolCallStyle::mistral;
  } else if (has("<function=")) {
    style.tools = ToolCallStyle::xml;
  } else if (has("<tool_call>")) {
    style.tools = ToolCallStyle::hermes;
  } else if (has("<|python_tag|>") || has("\"parameters\": dictionary")) {
    style.tools = ToolCallStyle::llama3;
  }
  if (has(kGemmaChannelEnd)) {
    style.think_begin = std::string(kGemmaChannel) + "thought";
    style.think_end = kGemmaChannelEnd;
  } else if (has("</think>")) {
    style.think_begin = "<think>";
    style.think_end = "</think>";
  } else if (has("[/THINK]")) {
    style.think_begin = "[THINK]";
    style.think_end = "[/THINK]";
  }
  return style;
}

std::vector<Token> shown_tokens(const ReplyStyle& style, const Tokenizer& tokenizer) {
  constexpr std::array<std::array<std::string_view, 5>, 8> kMarks = {{
      {},
      {kHermesCall, kHermesCallEnd},
      {kHermesCall, kHermesCallEnd},
      {kPythonCall},
      {kMistralCalls, kArgs, kCallId},
      {kDeepSeekCalls, kDeepSeekCallsEnd, kDeepSeekCall, kDeepSeekCallEnd, kDeepSeekSep},
      {kGemmaCall, kGemmaCallEnd, kGemmaQuote, kGemmaChannel, kGemmaChannelEnd},
  }};
  const auto& own = kMarks[static_cast<std::size_t>(style.tools)];
  std::vector<std::string_view> marks(own.begin(), own.end());
  if (style.channels) marks.assign(kHarmonyMarks.begin(), kHarmonyMarks.end());
  marks.push_back(style.think_begin);
  marks.push_back(style.think_end);
  std::vector<Token> tokens;
  for (const std::string_view mark : marks) {
    const auto id = mark.empty() ? std::nullopt : tokenizer.special_id(mark);
    const bool is_known = id && std::ranges::find(tokens, *id) != tokens.end();
    if (id && !is_known && tokenizer.type(*id) == TokenType::control) tokens.push_back(*id);
  }
  return tokens;
}

std::vector<std::string_view> marks_in_reasoning(const ReplyStyle& style) {
  if (!style.calls_end_reasoning) return {};
  switch (style.tools) {
    case ToolCallStyle::hermes:
      return {"<tool_call>\n{", "<tool_call>{"};
    case ToolCallStyle::xml:
      return {"<tool_call>\n<function=", "<tool_call><function="};
    case ToolCallStyle::mistral:
      return {kMistralCalls};
    case ToolCallStyle::deepseek:
      return {kDeepSeekCalls};
    case ToolCallStyle::gemma:
      return {kGemmaCall};
    default:
      return {};
  }
}

bool begins_with_reasoning(const ReplyStyle& style, std::string_view prompt) {
  prompt.remove_suffix(space_at_end(prompt));
  return !style.think_begin.empty() && prompt.ends_with(style.think_begin);
}

ReplyReader::ReplyReader(const ReplyStyle& style, std::string_view prompt, bool with_tools,
                         JsonNode tools)
    : style_(style), tools_(tools) {
  if (!with_tools) style_.tools = ToolCallStyle::none;
  if (style_.channels) {
    begin_channels(prompt);
  } else if (begins_with_reasoning(style_, prompt)) {
    place_ = Place::reasoning;
  }
}

ReplyPiece ReplyReader::push(std::string_view text) {
  held_ += text;
  while (step()) {
  }
  return std::exchange(out_, {});
}

ReplyPiece ReplyReader::finish() {
  ended_ = true;
  while (step()) {
  }
  if (place_ == Place::head) end_head();
  if (place_ == Place::header) end_header();
  if (body_ == CallBody::code) add_arguments("\"}");
  if (place_ == Place::reasoning) {
    out_.reasoning += held_;
  } else if (style_.channels || place_ == Place::content || place_ == Place::start) {
    emit(held_);
    out_.content += std::exchange(space_, {});
  }
  held_.clear();
  if (style_.calls_only) {
    out_.content.clear();
    for (ToolCallPiece& call : out_.calls) call.after = 0;
  }
  return std::exchange(out_, {});
}

bool ReplyReader::is_tool(std::string_view name) const {
  for (const JsonNode tool : tools_) {
    const JsonNode known = tool.find("function").find("name");
    if (known.is_string() && known.text() == name) return true;
  }
  return false;
}

// Ends a head that was cut off.
void ReplyReader::end_head() {
  const bool is_name =
      style_.tools != ToolCallStyle::mistral || trim(held_).find(' ') == std::string_view::npos;
  const bool marked = held_.starts_with(kFunction) ||
                      (!opened_.empty() && (is_name || trim(held_).starts_with('{')));
  const CallHead head = read_call_head(held_);
  std::string name = head.state == CallHead::State::open ? head.name : "";
  if (style_.tools == ToolCallStyle::mistral && name.empty()) {
    const std::size_t args = held_.find(kArgs);
    if (args < held_.size()) name = trim(held_.substr(0, std::min(args, held_.find(kCallId))));
  }
  if (!name.empty() && (marked || is_tool(name)))
    return begin_call(std::string(name), held_.size());
  if (!marked) treat_as_content();
}

bool ReplyReader::step() {
  if (held_.empty()) return false;
  constexpr std::array kSteps = {&ReplyReader::read_start,     &ReplyReader::read_reasoning,
                                 &ReplyReader::read_content,   &ReplyReader::read_head,
                                 &ReplyReader::read_arguments, &ReplyReader::read_parameters,
                                 &ReplyReader::read_tail,      &ReplyReader::read_between,
                                 &ReplyReader::read_header,    &ReplyReader::read_message};
  return (this->*kSteps[static_cast<std::size_t>(place_)])();
}

// Whether more text could complete this mark.
bool ReplyReader::waits_for(std::string_view mark) const {
  return !ended_ && held_.size() < mark.size() && mark.starts_with(held_);
}

bool ReplyReader::skip(std::string_view mark) {
  if (mark.empty() || !held_.starts_with(mark)) return false;
  held_.erase(0, mark.size());
  return true;
}

void ReplyReader::skip_space() {
  held_.erase(0, std::min(held_.find_first_not_of(kBlanks), held_.size()));
}

void ReplyReader::emit(std::string_view text) {
  if (text.empty()) return;
  const std::size_t space = space_at_end(text);
  if (space < text.size()) {
    out_.content += std::exchange(space_, {});
    out_.content += text.substr(0, text.size() - space);
  }
  space_ += text.substr(text.size() - space);
}

void ReplyReader::add_arguments(std::string_view text) {
  if (text.empty()) return;
  if (out_.calls.empty() || out_.calls.back().index + 1 != calls_) {
    out_.calls.push_back({.index = calls_ - 1, .after = out_.content.size()});
  }
  out_.calls.back().arguments += text;
}

void ReplyReader::begin_call(std::string_view name, std::size_t drop) {
  out_.calls.push_back(
      {.index = calls_++, .name = std::string(name), .after = out_.content.size()});
  name_ = name;
  held_.erase(0, drop);
  opened_.clear();
  space_.clear();
  depth_ = rest_ = {};
}

// Treats text that was taken for a call as content.
bool ReplyReader::treat_as_content() {
  const bool had_mark = !opened_.empty();
  emit(std::exchange(opened_, {}));
  place_ = Place::content;
  // In llama3's style an object without a mark is a call only at the beginning of a reply.
  if (held_.empty() || had_mark || style_.tools == ToolCallStyle::llama3) return !held_.empty();
  emit(
      std::string_view(held_).substr(0, 1));  // skips "<", so that the same mark is not found again
  held_.erase(0, 1);
  return true;
}

std::string_view ReplyReader::mark() const {
  constexpr std::array<std::string_view, 8> kMarks = {
      "", kHermesCall, kHermesCall, kPythonCall, kMistralCalls, kDeepSeekCalls, kGemmaCall, ""};
  return kMarks[static_cast<std::size_t>(style_.tools)];
}

// Skips white space, then decides between reasoning and content.
bool ReplyReader::read_start() {
  if (reasoning_) skip_space();
  const std::size_t first = held_.find_first_not_of(kBlanks);
  if (first == std::string::npos) return false;
  const std::string_view text = std::string_view(held_).substr(first);
  if (!style_.think_begin.empty()) {
    if (text.starts_with(style_.think_begin)) {
      held_.erase(0, first + style_.think_begin.size());
      place_ = Place::reasoning;
      return true;
    }
    if (!ended_ && style_.think_begin.starts_with(text)) return false;
  }
  place_ = Place::content;
  if (style_.tools == ToolCallStyle::llama3 && text.starts_with('{')) {
    opened_ = held_.substr(0, first);
    held_.erase(0, first);
    python_ = false;
    place_ = Place::head;
  }
  return true;
}

bool ReplyReader::read_reasoning() {
  if (!any_reasoning_) skip_space();  // before the first one
  std::size_t end = held_.find(style_.think_end), open = open_tail(held_, style_.think_end);
  bool is_call = false;
  for (const std::string_view mark : marks_in_reasoning(style_)) {
    const std::size_t at = held_.find(mark);
    is_call = is_call || at < end;
    end = std::min(end, at);
    open = std::max(open, open_tail(held_, mark));
  }
  if (end == std::string::npos) {
    const std::size_t sure = held_.size() - open;
    const std::size_t keep = sure - space_at_end(std::string_view(held_).substr(0, sure));
    out_.reasoning += held_.substr(0, keep);
    any_reasoning_ = any_reasoning_ || keep > 0;
    held_.erase(0, keep);
    return false;
  }
  const std::string_view text = std::string_view(held_).substr(0, end);
  out_.reasoning += text.substr(0, text.size() - space_at_end(text));
  held_.erase(0, end + (is_call ? 0 : style_.think_end.size()));
  place_ = is_call ? Place::content : Place::start;
  style_.think_begin.clear();  // only once
  reasoning_ = true;
  return true;
}

bool ReplyReader::read_content() {
  std::vector<std::string_view> marks;
  if (!mark().empty()) marks.push_back(mark());
  if (style_.tools == ToolCallStyle::xml) marks.push_back(kFunction);
  std::size_t at = std::string::npos, open = 0;
  std::string_view found;
  for (const std::string_view one : marks) {
    const std::size_t place = held_.find(one);
    if (place < at) {
      at = place;
      found = one;
    }
    open = std::max(open, open_tail(held_, one));
  }
  if (at == std::string::npos) {
    const std::size_t sure = held_.size() - (ended_ ? 0 : open);
    emit(std::string_view(held_).substr(0, sure));
    held_.erase(0, sure);
    return false;
  }
  emit(std::string_view(held_).substr(0, at));
  // Unlike other marks, <function= is part of the head that is read next.
  const bool is_head = found == kFunction;
  opened_ = is_head ? "" : std::string(found);
  held_.erase(0, at + opened_.size());
  python_ = found == kPythonCall;
  place_ = Place::head;
  return true;
}

bool ReplyReader::read_head() {
  if (held_.size() > kMaxHeadBytes) return treat_as_content();
  switch (style_.tools) {
    case ToolCallStyle::hermes:
      return read_json_head();
    case ToolCallStyle::xml:
      return read_xml_head();
    case ToolCallStyle::llama3:
      return python_ ? read_python_head() : read_json_head();
    case ToolCallStyle::mistral:
      return read_mistral_head();
    case ToolCallStyle::deepseek:
      return read_deepseek_head();
    case ToolCallStyle::gemma:
      return read_gemma_head();
    case ToolCallStyle::none:
    case ToolCallStyle::harmony:  // read_header
      break;
  }
  return treat_as_content();
}

bool ReplyReader::read_json_head() {
  CallHead head = read_call_head(held_);
  // A plain JSON object with a name is a call only if it has arguments.
  const std::string_view object = std::string_view(held_).substr(0, head.end);
  const bool bare = style_.tools == ToolCallStyle::llama3 && !python_ &&
                    head.state == CallHead::State::whole &&
                    object.find("\"parameters\"") == std::string_view::npos &&
                    object.find("\"arguments\"") == std::string_view::npos;
  switch (bare ? CallHead::State::bad : head.state) {
    case CallHead::State::open:
      return false;
    case CallHead::State::bad:
      return treat_as_content();
    case CallHead::State::streams:
      begin_call(head.name, head.arguments);
      place_ = Place::arguments;
      return true;
    case CallHead::State::whole:
      begin_call(head.name, head.end);
      add_arguments(head.text);
      rest_.take("{}");
      place_ = Place::tail;
      return true;
  }
  return false;
}

// Reads [{...}, ...], or NAME[ARGS]{...} with an optional id between them.
bool ReplyReader::read_mistral_head() {
  const std::size_t first = held_.find_first_not_of(kBlanks);
  if (first == std::string::npos) return false;
  if (held_[first] == '[') {
    opened_ += held_.substr(0, first + 1);
    held_.erase(0, first + 1);
    place_ = Place::between;
    return true;
  }
  if (held_[first] == '{') return read_json_head();
  const std::size_t args = held_.find(kArgs), brace = held_.find('{');
  if (brace == std::string::npos) return false;
  const std::size_t end = std::min({args, held_.find(kCallId), brace});
  const std::string_view name = trim(std::string_view(held_).substr(0, end));
  if (name.empty() || name.find_first_of(kBlanks) != std::string_view::npos)
    return treat_as_content();
  begin_call(std::string(name), brace);
  rest_.take("{}");
  place_ = Place::arguments;
  return true;
}

// Reads <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}, or "function" instead of the name, which is
// then on a line before a block of JSON.
bool ReplyReader::read_deepseek_head() {
  const std::size_t call = held_.find(kDeepSeekCall), sep = held_.find(kDeepSeekSep);
  if (sep == std::string::npos) return false;
  const std::size_t from = call < sep ? call + kDeepSeekCall.size() : 0;
  const std::size_t brace = held_.find('{', sep);
  if (brace == std::string::npos) return false;
  std::string_view name = trim(std::string_view(held_).substr(from, sep - from));
  if (name == "function") {
    const std::string_view rest = std::string_view(held_).substr(sep + kDeepSeekSep.size(),
                                                                 brace - sep - kDeepSeekSep.size());
    name = trim(rest.substr(0, rest.find('\n')));
  }
  if (name.empty()) return treat_as_content();
  begin_call(std::string(name), brace);
  rest_.take("{}");
  place_ = Place::arguments;
  return true;
}

bool ReplyReader::read_xml_head() {
  const std::size_t first = held_.find_first_not_of(kBlanks);
  if (first == std::string::npos) return false;
  const std::string_view text = std::string_view(held_).substr(first);
  if (!text.starts_with(kFunction)) {
    if (!ended_ && kFunction.starts_with(text)) return false;
    if (text[0] == '{') return read_json_head();
    return treat_as_content();
  }
  const std::size_t end = text.find('>');
  if (end == std::string_view::npos) return false;
  const std::string name(trim(text.substr(kFunction.size(), end - kFunction.size())));
  if (name.empty()) return treat_as_content();
  begin_call(name, first + end + 1);
  add_arguments("{");
  keys_.clear();
  place_ = Place::parameters;
  return true;
}

// Reads NAME.call(KEY="...", ...) of built-in tools; other text is a program, returned at the end.
bool ReplyReader::read_python_head() {
  const std::size_t first = held_.find_first_not_of(kBlanks);
  if (first == std::string::npos) return false;
  if (held_[first] == '{') return read_json_head();
  if (!ended_) return false;
  std::string_view text = trim(held_);
  const std::size_t call = text.find(".call(");
  Json arguments = Json::object();
  std::string name = "python";
  if (call != std::string_view::npos && text.ends_with(')') &&
      text.substr(0, call).find_first_of(" \n(") == std::string_view::npos) {
    std::string_view rest = text.substr(call + 6);
    rest.remove_suffix(1);
    while (!rest.empty()) {
      const std::size_t equals = rest.find('=');
      if (equals == std::string_view::npos || equals + 1 >= rest.size()) break;
      const std::string key(trim(rest.substr(0, equals)));
      const std::size_t end = json_value_end(rest, equals + 1).value_or(rest.size());
      const auto value = json_of(rest.substr(equals + 1, end - equals - 1));
      if (!value) break;
      arguments[key] = *value;
      rest = rest.substr(end);
      rest.remove_prefix(std::min(rest.find_first_not_of(" ,"), rest.size()));
    }
    if (rest.empty()) name = text.substr(0, call);
  }
  if (name == "python") arguments = {{"code", std::string(text)}};
  begin_call(name, held_.size());
  add_arguments(arguments.dump_any());
  place_ = Place::content;
  return false;
}

bool ReplyReader::read_arguments() {
  const std::size_t taken = depth_.take(held_);
  add_arguments(std::string_view(held_).substr(0, taken));
  held_.erase(0, taken);
  if (depth_.closed()) place_ = Place::tail;
  return depth_.closed();
}

JsonNode ReplyReader::schema() const {
  for (const JsonNode tool : tools_) {
    const JsonNode function = tool.find("function");
    const JsonNode name = function.find("name");
    if (name.is_string() && name.text() == name_) return function.find("parameters");
  }
  return {};
}

// The value of one argument as JSON: a string if its tool's schema allows one.
std::string ReplyReader::argument_value(std::string_view key, std::string_view text) const {
  const auto json = json_of(text);
  if (!json || json->is_string()) return Json(text).dump_any();
  const JsonNode property = schema().find("properties").find(key);
  const bool null = json->is_null() && allows_null(property, schema());
  if (!null && text_use(property, schema()) == TextUse::allowed) return Json(text).dump_any();
  return std::string(trim(text));
}

// A parameter that is a text in any case is passed on as it comes.
bool ReplyReader::read_text_parameter() {
  constexpr std::string_view kLastLine = "\n</parameter>";
  const std::size_t end = held_.find(kParameterEnd);
  const bool is_whole = end != std::string::npos;
  std::size_t sure = end;
  if (!is_whole) {
    const std::size_t open = std::max(open_tail(held_, kLastLine), open_tail(held_, kParameterEnd));
    sure = held_.size() - (ended_ ? 0 : std::max(open, open_character(held_)));
  } else if (end > 0 && held_[end - 1] == '\n') {
    sure = end - 1;
  }
  add_arguments(escaped(std::string_view(held_).substr(0, sure)));
  held_.erase(0, is_whole ? end + kParameterEnd.size() : sure);
  if (!is_whole) return false;
  add_arguments("\"");
  in_text_ = false;
  return true;
}

bool ReplyReader::read_parameters() {
  if (style_.tools == ToolCallStyle::gemma) return read_gemma_arguments();
  if (in_text_) return read_text_parameter();
  skip_space();
  if (held_.empty() || waits_for(kParameter) || waits_for(kFunctionEnd)) return false;
  if (!held_.starts_with(kParameter)) {
    skip(kFunctionEnd);
    add_arguments("}");
    rest_.take("{}");
    place_ = Place::tail;
    return true;
  }
  const std::size_t end = held_.find(kParameterEnd);
  const std::size_t open = held_.find('>');
  if (open == std::string::npos || open > end) return false;
  const std::string key(
      trim(std::string_view(held_).substr(kParameter.size(), open - kParameter.size())));
  const JsonNode property = schema().find("properties").find(key);
  // The first of equal keys counts, because it may have been streamed.
  const bool is_new = !keys_.contains(key);
  const std::string begin = (keys_.empty() ? "" : ", ") + Json(key).dump_any() + ": ";
  if (is_new && property && text_use(property, schema()) == TextUse::allowed &&
      !allows_null(property, schema())) {
    if (open + 1 == held_.size()) return false;
    add_arguments(begin + "\"");
    held_.erase(0, open + (held_[open + 1] == '\n' ? 2 : 1));
    keys_.insert(key);
    in_text_ = true;
    return true;
  }
  if (end == std::string::npos) return false;
  std::string_view value = std::string_view(held_).substr(open + 1, end - open - 1);
  if (value.starts_with('\n')) value.remove_prefix(1);
  if (value.ends_with('\n')) value.remove_suffix(1);
  if (is_new) add_arguments(begin + argument_value(key, value));
  keys_.insert(key);
  held_.erase(0, end + kParameterEnd.size());
  return true;
}

// Reads the text that closes a call and is not part of its arguments.
bool ReplyReader::read_tail() {
  if (!rest_.closed()) {  // the enclosing object is open
    JsonDepth outer = rest_;
    std::string text = "{" + held_;
    const std::size_t taken = outer.take(text);
    if (!outer.closed()) return false;
    held_.erase(0, taken - 1);
    rest_ = outer;
    return true;
  }
  skip_space();
  if (held_.empty()) return false;
  constexpr std::array<std::array<std::string_view, 2>, 8> kEnds = {{{},
                                                                     {kHermesCallEnd},
                                                                     {kHermesCallEnd},
                                                                     {";"},
                                                                     {},
                                                                     {"```", kDeepSeekCallEnd},
                                                                     {kGemmaCallEnd},
                                                                     {}}};
  for (const std::string_view end : kEnds[static_cast<std::size_t>(style_.tools)]) {
    // Where the reply is cut off here, the rest of the call is no content.
    if (held_.size() < end.size() && end.starts_with(held_)) return false;
    if (skip(end)) return true;
  }
  place_ = Place::between;
  return true;
}

bool ReplyReader::read_between() {
  skip_space();
  if (held_.empty()) return false;
  if (style_.tools == ToolCallStyle::mistral && (held_[0] == ',' || held_[0] == ']')) {
    const bool more = held_[0] == ',';
    held_.erase(0, 1);
    opened_.clear();
    if (!more) place_ = Place::content;
    return true;
  }
  if (style_.tools == ToolCallStyle::mistral || style_.tools == ToolCallStyle::llama3) {
    place_ = held_[0] == '{' ? Place::head : Place::content;
    if (place_ == Place::content && !opened_.empty()) return treat_as_content();
    return true;
  }
  if (style_.tools == ToolCallStyle::deepseek) {
    if (waits_for(kDeepSeekCallsEnd) || waits_for(kDeepSeekCall)) return false;
    if (held_.starts_with(kDeepSeekCall)) {
      place_ = Place::head;
      return true;
    }
    skip(kDeepSeekCallsEnd);
    skip_space();
  }
  place_ = Place::content;
  return !held_.empty();
}

}  // namespace leq
