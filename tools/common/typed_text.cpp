#include "tools/common/typed_text.h"

#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<char> simple_escape(char c) {
  constexpr std::string_view kFrom = "ntr\"'\\";
  constexpr std::string_view kTo = "\n\t\r\"'\\";
  const std::size_t at = kFrom.find(c);
  if (at == std::string_view::npos) return std::nullopt;
  return kTo[at];
}

}  // namespace

std::string process_escapes(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char next = text[i + 1];
    if (const auto simple = simple_escape(next)) {
      out += *simple;
      ++i;
    } else if (next == 'x' && i + 3 < text.size() && hex_digit(text[i + 2]) >= 0 &&
               hex_digit(text[i + 3]) >= 0) {
      out += static_cast<char>(hex_digit(text[i + 2]) * 16 + hex_digit(text[i + 3]));
      i += 3;
    } else {
      out += '\\';
    }
  }
  return out;
}

void check_utf8(std::string_view text, std::string_view what) {
  const auto offset = first_invalid_utf8(text);
  if (!offset) return;
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(text[*offset]);
  fail(what, ": byte 0x", kDigits[byte >> 4], kDigits[byte & 15], " at offset ", *offset,
       " is not UTF-8: convert the text to UTF-8 (iconv -t UTF-8)");
}

}  // namespace leq
