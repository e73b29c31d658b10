// ReplyReader for Gemma's calls: call:NAME{KEY:VALUE,...}. Keys have no quotes, and strings have a
// mark of their own around them, in which nothing is escaped; arguments become JSON as they come.
#include <algorithm>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "chat/reply_text.h"
#include "chat/tool_calls.h"

namespace leq {
namespace {

// A value without quotes as JSON: a number, true, false or null, also in Python's spelling.
std::string bare_value(std::string_view word) {
  if (word == "None") return "null";
  if (word == "True") return "true";
  if (word == "False") return "false";
  try {
    (void)parse_json(word, "reply");
    return std::string(word);
  } catch (const Error&) {
    return Json(word).dump_any();
  }
}

}  // namespace

bool ReplyReader::read_gemma_head() {
  const std::size_t first = held_.find_first_not_of(kBlanks);
  if (first == std::string::npos) return false;
  const std::string_view text = std::string_view(held_).substr(first);
  if (!text.starts_with(kGemmaName)) {
    return !ended_ && kGemmaName.starts_with(text) ? false : treat_as_content();
  }
  const std::size_t brace = text.find('{');
  if (brace == std::string_view::npos) return false;
  const std::string name(trim(text.substr(kGemmaName.size(), brace - kGemmaName.size())));
  if (name.empty() || name.find_first_of(kBlanks) != std::string::npos) return treat_as_content();
  begin_call(name, first + brace);
  brackets_.clear();
  in_text_ = false;
  place_ = Place::parameters;
  return true;
}

// Reads as much of a string as is certain.
bool ReplyReader::read_gemma_text() {
  const std::size_t end = held_.find(kGemmaQuote);
  const bool is_whole = end != std::string::npos;
  const std::size_t open = std::max(open_tail(held_, kGemmaQuote), open_character(held_));
  const std::size_t sure = is_whole ? end : held_.size() - (ended_ ? 0 : open);
  add_arguments(escaped(std::string_view(held_).substr(0, sure)));
  held_.erase(0, is_whole ? end + kGemmaQuote.size() : sure);
  if (!is_whole) return false;
  add_arguments("\"");
  in_text_ = false;
  return true;
}

bool ReplyReader::read_gemma_arguments() {
  if (in_text_) return read_gemma_text();
  skip_space();
  if (held_.empty() || waits_for(kGemmaQuote)) return false;
  if (skip(kGemmaQuote)) {
    add_arguments("\"");
    in_text_ = true;
    return true;
  }
  const char c = held_[0];
  std::size_t taken = 1;
  if (c == '{' || c == '[') {
    brackets_ += c;
    add_arguments({&c, 1});
    at_key_ = c == '{';
  } else if (c == '}' || c == ']') {
    add_arguments(brackets_.back() == '{' ? "}" : "]");
    brackets_.pop_back();
  } else if (c == ',' || c == ':') {
    add_arguments(c == ',' ? ", " : ": ");
    at_key_ = c == ',' && brackets_.back() == '{';
  } else if (c == '"') {  // JSON's own notation
    taken = json_string_end(held_);
    if (taken == std::string::npos) return false;
    add_arguments(held_.substr(0, taken));
  } else {
    taken = held_.find_first_of(at_key_ ? ":" : ",}]");
    if (taken == std::string::npos) return false;
    const std::string_view word = trim(std::string_view(held_).substr(0, taken));
    add_arguments(at_key_ ? Json(word).dump_any() : bare_value(word));
  }
  held_.erase(0, taken);
  if (!brackets_.empty()) return true;
  rest_.take("{}");
  place_ = Place::tail;
  return true;
}

}  // namespace leq
