// Pieces of text as the readers of replies cut them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/json.h"

namespace leq {

inline constexpr std::string_view kBlanks = " \t\r\n";
inline constexpr std::size_t kMaxHeadBytes = 1 << 16;  // names of calls are shorter

inline std::size_t space_at_end(std::string_view text) {
  const std::size_t last = text.find_last_not_of(kBlanks);
  return last == std::string_view::npos ? text.size() : text.size() - last - 1;
}

// Length of the longest suffix of `text` that is the beginning of `mark`.
inline std::size_t open_tail(std::string_view text, std::string_view mark) {
  for (std::size_t length = std::min(text.size(), mark.size() - 1); length > 0; --length) {
    if (mark.starts_with(text.substr(text.size() - length))) return length;
  }
  return 0;
}

// Length of the JSON string that begins the text, with its quotes; npos if it has no end.
std::size_t json_string_end(std::string_view text);

// The text as JSON writes it in a string, without quotes.
inline std::string escaped(std::string_view text) {
  const std::string quoted = Json(text).dump_any();
  return quoted.substr(1, quoted.size() - 2);
}

// Number of bytes at the end of the text that may begin a character of more bytes.
inline std::size_t open_character(std::string_view text) {
  constexpr std::size_t kMaxBytes = 4;
  for (std::size_t length = 1; length <= std::min(text.size(), kMaxBytes - 1); ++length) {
    const auto byte = static_cast<unsigned char>(text[text.size() - length]);
    if (byte < 0x80) return 0;
    const std::size_t whole = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    if (byte >= 0xc0) return whole > length ? length : 0;
  }
  return 0;
}

}  // namespace leq
