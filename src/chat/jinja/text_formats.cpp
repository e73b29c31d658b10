// Jinja's filters title, format and wordcount, and Python's str.format().
#include <utf8proc.h>

#include <algorithm>

#include "base/text.h"
#include "chat/jinja/context.h"

namespace leq::jinja {
namespace {

// Like Python's \w: letters, numbers and the underscore.
bool is_word_character(std::string_view character) {
  if (character == "_") return true;
  if (utf8_length(character) == 0) return false;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(decode_utf8(character)));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
         (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

}  // namespace

// Words begin after white space and these; unlike in Python's title(), not after an apostrophe.
std::string jinja_title(std::string_view text) {
  constexpr std::string_view kBegin = "-({[<";
  std::string out;
  bool begins = true;
  while (!text.empty()) {
    const std::size_t length = std::max<std::size_t>(utf8_length(text), 1);
    const std::string_view character = text.substr(0, length);
    out += changed_case(character, begins ? "upper" : "lower");
    const bool is_mark = length == 1 && kBegin.find(character[0]) != std::string_view::npos;
    begins = is_mark || leading_space(character) == length;
    text.remove_prefix(length);
  }
  return out;
}

// Counts runs of letters, digits and underscores.
std::int64_t count_words(std::string_view text) {
  std::int64_t words = 0;
  bool in_word = false;
  while (!text.empty()) {
    const std::size_t length = std::max<std::size_t>(utf8_length(text), 1);
    const bool is_word = is_word_character(text.substr(0, length));
    words += is_word && !in_word ? 1 : 0;
    in_word = is_word;
    text.remove_prefix(length);
  }
  return words;
}

// Supports {}, {0} and {name} without conversions and formats; {{ and }} are literal brackets.
Value str_format(Context& context, const Value& self, const Arguments& arguments) {
  const std::string_view bytes = self.bytes();
  Text out;
  std::size_t next = 0, done = 0;
  bool numbered = false;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    if (bytes[at] != '{' && bytes[at] != '}') continue;
    out.append(self.text->slice(done, at - done));
    const bool doubled = at + 1 < bytes.size() && bytes[at + 1] == bytes[at];
    if (doubled) {
      out.append(self.text->slice(at, 1));
      done = ++at + 1;
      continue;
    }
    const std::size_t end = bytes.find('}', at);
    if (bytes[at] == '}' || end == std::string_view::npos)
      context.wrong("format(): a single bracket");
    const std::string_view name = bytes.substr(at + 1, end - at - 1);
    if (name.find_first_of(".[:!{") != std::string_view::npos) {
      context.wrong("format(): {", printable(name), "} is not supported, only {}, {0} and {name}");
    }
    const auto number = name.empty()
                            ? std::optional<std::int64_t>(static_cast<std::int64_t>(next++))
                            : parse_int(name);
    numbered = numbered || (number && !name.empty());
    if (numbered && next > 0) context.wrong("format(): {} and {0} in one text");
    std::optional<Value> value;
    if (number && *number >= 0 && *number < std::ssize(arguments.values)) {
      value = arguments.values[static_cast<std::size_t>(*number)];
    }
    for (const auto& [key, held] : arguments.named) {
      if (key == name) value = held;
    }
    if (!value) context.wrong("format(): there is no argument for {", printable(name), "}");
    out.append(to_text(context, *value));
    at = end;
    done = end + 1;
  }
  out.append(self.text->slice(done, bytes.size() - done));
  return context.heap.text(std::move(out));
}

}  // namespace leq::jinja
