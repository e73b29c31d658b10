#include "chat/jinja/text.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"

namespace leq::jinja {
namespace {

// White space as defined by Python's str.isspace.
bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

std::size_t character_length(std::string_view bytes) {
  return std::max<std::size_t>(utf8_length(bytes), 1);
}

std::string_view last_character(std::string_view bytes) {
  for (std::size_t length = std::min<std::size_t>(4, bytes.size()); length > 0; --length) {
    const auto tail = bytes.substr(bytes.size() - length);
    if (utf8_length(tail) == length) return tail;
  }
  return bytes.substr(bytes.size() - 1);
}

bool is_space(std::string_view character) {
  return utf8_length(character) > 0 && is_space(decode_utf8(character));
}

// Whether `characters` contains this character.
bool holds(std::string_view characters, std::string_view character) {
  while (!characters.empty()) {
    const std::size_t length = character_length(characters);
    if (characters.substr(0, length) == character) return true;
    characters.remove_prefix(length);
  }
  return false;
}

template <class Drops>
Text strip_where(const Text& text, Ends ends, const Drops& drops) {
  std::string_view rest = text.bytes();
  std::size_t from = 0;
  if (ends != Ends::right) {
    while (!rest.empty()) {
      const auto first = rest.substr(0, character_length(rest));
      if (!drops(first)) break;
      rest.remove_prefix(first.size());
      from += first.size();
    }
  }
  if (ends != Ends::left) {
    while (!rest.empty()) {
      const auto last = last_character(rest);
      if (!drops(last)) break;
      rest.remove_suffix(last.size());
    }
  }
  return text.slice(from, rest.size());
}

}  // namespace

Text Text::slice(std::size_t from, std::size_t length) const {
  Text part;
  part.bytes_ = bytes_.substr(from, length);
  part.own_ = own_.substr(from, length);
  part.safe = safe;
  return part;
}

void Text::append(const Text& other) {
  bytes_ += other.bytes_;
  own_ += other.own_;
}

Text stripped(const Text& text, Ends ends) {
  return strip_where(text, ends, [](std::string_view c) { return is_space(c); });
}

Text stripped(const Text& text, Ends ends, std::string_view characters) {
  return strip_where(text, ends, [&](std::string_view c) { return holds(characters, c); });
}

std::size_t leading_space(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const auto c = bytes.substr(at, character_length(bytes.substr(at)));
    if (!is_space(c)) break;
    at += c.size();
  }
  return at;
}

std::size_t trailing_space(std::string_view bytes) {
  const std::size_t all = bytes.size();
  while (!bytes.empty()) {
    const auto c = last_character(bytes);
    if (!is_space(c)) break;
    bytes.remove_suffix(c.size());
  }
  return all - bytes.size();
}

std::vector<Text> split(const Text& text, std::string_view separator, std::int64_t most) {
  std::vector<Text> parts;
  std::size_t from = 0;
  while (most < 0 || std::ssize(parts) < most) {
    const std::size_t at = text.bytes().find(separator, from);
    if (at == std::string_view::npos) break;
    parts.push_back(text.slice(from, at - from));
    from = at + separator.size();
  }
  parts.push_back(text.slice(from, text.size() - from));
  return parts;
}

std::vector<Text> split_right(const Text& text, std::string_view separator, std::int64_t most) {
  std::vector<Text> parts;
  std::size_t end = text.size();
  while (most < 0 || std::ssize(parts) < most) {
    const std::size_t at = text.bytes().substr(0, end).rfind(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.slice(at + separator.size(), end - at - separator.size()));
    end = at;
  }
  parts.push_back(text.slice(0, end));
  std::ranges::reverse(parts);
  return parts;
}

std::vector<Text> split_space(const Text& text, std::int64_t most) {
  std::vector<Text> parts;
  const std::string_view bytes = text.bytes();
  std::size_t at = leading_space(bytes);
  while (at < bytes.size()) {
    if (most >= 0 && std::ssize(parts) == most) {
      const std::size_t end = bytes.size() - trailing_space(bytes.substr(at));
      parts.push_back(text.slice(at, end - at));
      break;
    }
    const std::size_t from = at;
    while (at < bytes.size()) {
      const auto c = bytes.substr(at, character_length(bytes.substr(at)));
      if (is_space(c)) break;
      at += c.size();
    }
    parts.push_back(text.slice(from, at - from));
    at += leading_space(bytes.substr(at));
  }
  return parts;
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  constexpr std::array<std::string_view, 11> kEnds = {
      "\r\n", "\n",   "\r",       "\v",           "\f",          "\x1c",
      "\x1d", "\x1e", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"};
  std::vector<Text> lines;
  const std::string_view bytes = text.bytes();
  std::size_t from = 0, at = 0;
  while (at < bytes.size()) {
    const auto end = std::ranges::find_if(
        kEnds, [&](std::string_view e) { return bytes.substr(at).starts_with(e); });
    if (end == kEnds.end()) {
      ++at;
      continue;
    }
    lines.push_back(text.slice(from, at - from + (keep_ends ? end->size() : 0)));
    at += end->size();
    from = at;
  }
  if (from < bytes.size()) lines.push_back(text.slice(from, bytes.size() - from));
  return lines;
}

Text replaced(const Text& text, const Text& from, const Text& to, std::int64_t most) {
  Text out;
  std::size_t done = 0;
  if (from.empty()) {  // inserted between all characters, as in Python
    for (const std::size_t start : character_starts(text.bytes())) {
      out.append(text.slice(done, start - done));
      done = start;
      if (most != 0) out.append(to);
      if (most > 0) --most;
    }
    return out;
  }
  for (; most != 0; --most) {
    const std::size_t at = text.bytes().find(from.bytes(), done);
    if (at == std::string_view::npos) break;
    out.append(text.slice(done, at - done));
    out.append(to);
    done = at + from.size();
  }
  out.append(text.slice(done, text.size() - done));
  out.safe = text.safe;
  return out;
}

Text escaped(const Text& text) {
  Text out = text;
  for (const auto& [from, to] :
       {std::pair("&", "&amp;"), std::pair(">", "&gt;"), std::pair("<", "&lt;"),
        std::pair("'", "&#39;"), std::pair("\"", "&#34;")}) {
    out = replaced(out, Text::foreign(from), Text::foreign(to), -1);
  }
  out.safe = true;
  return out;
}

std::size_t count_characters(std::string_view bytes) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < bytes.size(); ++count) at += character_length(bytes.substr(at));
  return count;
}

std::vector<std::size_t> character_starts(std::string_view bytes) {
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < bytes.size(); at += character_length(bytes.substr(at))) {
    starts.push_back(at);
  }
  starts.push_back(bytes.size());
  return starts;
}

}  // namespace leq::jinja
