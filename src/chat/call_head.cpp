#include "chat/call_head.h"

#include <algorithm>

#include "base/error.h"

namespace leq {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

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

}  // namespace

std::optional<Json> json_of(std::string_view text) {
  try {
    return parse_json(text, "reply");
  } catch (const Error&) {
    return std::nullopt;
  }
}

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
  std::size_t at = skip(0, kSpace);
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
    at = skip(at + key->size(), kSpace);
    if (at == text.size()) return head;
    if (text[at] != ':') return {CallHead::State::bad};
    at = skip(at + 1, kSpace);
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

}  // namespace leq
