// ReplyReader for the style with channels: a reply is messages, each with a header,
// <|channel|>NAME to=RECIPIENT <|constrain|>json<|message|>, and a text that ends with <|end|>,
// <|call|> or <|return|>. The analysis channel is reasoning; a message with a recipient is a call.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "chat/reply_text.h"
#include "chat/tool_calls.h"

namespace leq {
namespace {

constexpr std::string_view kFunctions = "functions.";
constexpr std::array kMessageEnds = {kHarmonyEnd, kHarmonyCall, std::string_view("<|return|>"),
                                     kHarmonyRole};
constexpr std::array kHeaderStarts = {kHarmonyStart, kHarmonyChannel, kHarmonyMessage,
                                      std::string_view("<|constrain|>"), std::string_view("to=")};

struct Found {
  std::size_t at = std::string::npos;
  std::size_t open = 0;  // bytes at the end that may begin a mark
};
Found find_end(std::string_view text) {
  Found found;
  for (const std::string_view mark : kMessageEnds) {
    found.at = std::min(found.at, text.find(mark));
    found.open = std::max(found.open, open_tail(text, mark));
  }
  return found;
}

// The word after `key` in a header; nothing after it: the header is cut within the word.
struct HeaderWord {
  std::string_view text;
  bool is_whole = false;
};
HeaderWord word_after(std::string_view header, std::string_view key) {
  const std::size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + key.size());
  const std::size_t end = rest.find_first_of(" \t\r\n<");
  return {rest.substr(0, end), end != std::string_view::npos};
}

// The tool that is called; empty: the message is for the user.
std::string_view called(std::string_view recipient) {
  if (recipient == "assistant" || recipient == "user" || recipient == "all") return {};
  if (recipient.starts_with(kFunctions)) recipient.remove_prefix(kFunctions.size());
  return recipient;
}

}  // namespace

// The end of the prompt has begun the first header, or the text of a message that is continued.
void ReplyReader::begin_channels(std::string_view prompt) {
  place_ = Place::header;
  const std::size_t start = prompt.rfind(kHarmonyRole);
  if (start == std::string_view::npos) return;
  const std::string_view header = prompt.substr(start + kHarmonyRole.size());
  const std::size_t text = header.find(kHarmonyMessage);
  if (text == std::string_view::npos) {
    held_ = header;
  } else if (find_end(header).at == std::string::npos) {
    begin_message(header.substr(0, text), 0);
  }
}

bool ReplyReader::read_header() {
  const std::size_t first = held_.find_first_not_of(kBlanks);
  if (first == std::string::npos) return false;
  const std::string_view text = std::string_view(held_).substr(first);
  const auto starts = [&](std::string_view mark) { return text.starts_with(mark); };
  if (std::ranges::none_of(kHeaderStarts, starts)) {
    const auto may_start = [&](std::string_view mark) { return mark.starts_with(text); };
    if (!ended_ && std::ranges::any_of(kHeaderStarts, may_start)) return false;
    begin_message("", 0);  // no header
    return true;
  }
  const std::size_t end = held_.find(kHarmonyMessage);
  if (end == std::string::npos) {
    if (held_.size() > kMaxHeadBytes) begin_message("", 0);
    return place_ == Place::message;
  }
  begin_message(std::string(held_, 0, end), end + kHarmonyMessage.size());
  return true;
}

// A header that was cut off is a call if its name is whole.
void ReplyReader::end_header() {
  const HeaderWord recipient = word_after(held_, "to=");
  const std::string name(called(recipient.text));
  if (style_.tools == ToolCallStyle::harmony && recipient.is_whole && !name.empty()) {
    begin_call(name, held_.size());
  }
  held_.clear();
}

void ReplyReader::begin_message(std::string_view header, std::size_t drop) {
  const std::string name(called(word_after(header, "to=").text));
  const bool reasons =
      !style_.think_begin.empty() && word_after(header, kHarmonyChannel).text == "analysis";
  place_ = Place::message;
  body_ = CallBody::unknown;
  if (style_.tools == ToolCallStyle::harmony && !name.empty()) {
    channel_ = Channel::call;
    return begin_call(name, drop);
  }
  channel_ = reasons ? Channel::reasoning : Channel::content;
  joins_ = reasons ? any_reasoning_ : any_content_;
  held_.erase(0, drop);
}

// `mark`: where the message's end begins. The start of the next message is part of its header.
bool ReplyReader::end_message(std::size_t mark) {
  held_.erase(0, mark);
  for (const std::string_view end : kMessageEnds) {
    if (end != kHarmonyRole && skip(end)) break;
  }
  place_ = Place::header;
  return !held_.empty();
}

void ReplyReader::emit_message(std::string_view text) {
  if (text.empty()) return;
  const std::string_view before = std::exchange(joins_, false) ? "\n" : "";
  if (channel_ == Channel::reasoning) {
    any_reasoning_ = true;
    (out_.reasoning += before) += text;
  } else {
    any_content_ = true;
    emit(before);
    emit(text);
  }
}

bool ReplyReader::read_message() {
  if (channel_ == Channel::call) return read_call_body();
  const Found end = find_end(held_);
  const bool is_whole = end.at != std::string::npos;
  const std::size_t sure = is_whole ? end.at : held_.size() - (ended_ ? 0 : end.open);
  emit_message(std::string_view(held_).substr(0, sure));
  if (is_whole) return end_message(sure);
  held_.erase(0, sure);
  return false;
}

// Marks in an object of JSON are part of its strings. A text that is no object is a program.
bool ReplyReader::read_call_body() {
  if (body_ == CallBody::unknown) {
    skip_space();
    if (held_.empty()) return false;
    body_ = held_[0] == '{' ? CallBody::json : CallBody::code;
    if (body_ == CallBody::json) return true;
    const Found end = find_end(held_);
    if (end.at == 0) {
      add_arguments("{}");
      body_ = CallBody::done;
      return true;
    }
    if (end.open == held_.size() && !ended_) {
      body_ = CallBody::unknown;
      return false;
    }
    add_arguments("{\"code\": \"");
  }
  if (body_ == CallBody::json) {
    const std::size_t taken = depth_.take(held_);
    add_arguments(std::string_view(held_).substr(0, taken));
    held_.erase(0, taken);
    if (!depth_.closed()) return false;
    body_ = CallBody::done;
  }
  const Found end = find_end(held_);
  const bool is_whole = end.at != std::string::npos;
  std::size_t sure = is_whole ? end.at : held_.size() - (ended_ ? 0 : end.open);
  if (body_ == CallBody::code) {
    if (!is_whole && !ended_ && end.open == 0) sure -= open_character(held_);
    add_arguments(escaped(std::string_view(held_).substr(0, sure)));
    if (is_whole) add_arguments("\"}");
  }
  if (is_whole) {
    body_ = CallBody::done;
    return end_message(sure);
  }
  held_.erase(0, sure);
  return false;
}

}  // namespace leq
