#include "base/text.h"

#include <openssl/evp.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace leq {

std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto follows = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xbf) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2) return 0;
  if (first < 0xe0) return follows(1) ? 2 : 0;
  if (first < 0xf0) {
    const unsigned low = first == 0xe0 ? 0xa0 : 0x80;
    const unsigned high = first == 0xed ? 0x9f : 0xbf;
    return follows(1, low, high) && follows(2) ? 3 : 0;
  }
  if (first > 0xf4) return 0;
  const unsigned low = first == 0xf0 ? 0x90 : 0x80;
  const unsigned high = first == 0xf4 ? 0x8f : 0xbf;
  return follows(1, low, high) && follows(2) && follows(3) ? 4 : 0;
}

std::optional<std::size_t> first_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    std::uint64_t eight = ~std::uint64_t{0};
    if (text.size() - i >= sizeof(eight)) std::memcpy(&eight, text.data() + i, sizeof(eight));
    if ((eight & 0x8080808080808080u) == 0) {  // all ASCII
      i += sizeof(eight);
      continue;
    }
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return std::nullopt;
}

char32_t decode_utf8(std::string_view text) {
  const auto tail = [&](std::size_t i) { return static_cast<char32_t>(text[i]) & 0x3f; };
  const auto first = static_cast<char32_t>(static_cast<unsigned char>(text[0]));
  switch (utf8_length(text)) {
    case 2:
      return (first & 0x1f) << 6 | tail(1);
    case 3:
      return (first & 0x0f) << 12 | tail(1) << 6 | tail(2);
    case 4:
      return (first & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3);
    default:
      return first;
  }
}

void append_utf8(std::string& out, char32_t character) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (character < 0x80) {
    put(character);
  } else if (character < 0x800) {
    put(0xc0 | character >> 6);
    put(0x80 | (character & 0x3f));
  } else if (character < 0x10000) {
    put(0xe0 | character >> 12);
    put(0x80 | (character >> 6 & 0x3f));
    put(0x80 | (character & 0x3f));
  } else {
    put(0xf0 | character >> 18);
    put(0x80 | (character >> 12 & 0x3f));
    put(0x80 | (character >> 6 & 0x3f));
    put(0x80 | (character & 0x3f));
  }
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + separator.size());
  }
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string joined;
  for (const std::string& part : parts) {
    if (&part != parts.data()) joined += separator;
    joined += part;
  }
  return joined;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  if (from.empty()) return std::string(text);
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t at = 0; (at = text.find(from, done)) != std::string_view::npos;) {
    out.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  return out.append(text, done);
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {" B", " kB", " MB", " GB", " TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  const int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fixed(value, decimals) + std::string(kUnits[unit]);
}

std::string given_bytes(std::uint64_t bytes) {
  struct Unit {
    char letter;
    std::uint64_t bytes;
  };
  for (const Unit unit : {Unit{'G', 1ull << 30}, Unit{'M', 1ull << 20}, Unit{'k', 1ull << 10}}) {
    const std::uint64_t rest = bytes % unit.bytes * 100;
    if (bytes < unit.bytes || bytes >= 10000 * unit.bytes || rest % unit.bytes != 0) continue;
    std::string typed = fixed(static_cast<double>(bytes) / static_cast<double>(unit.bytes), 2);
    while (typed.ends_with('0')) typed.pop_back();
    if (typed.ends_with('.')) typed.pop_back();
    return typed + unit.letter + " (" + human_bytes(bytes) + ")";
  }
  return human_bytes(bytes);
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  constexpr std::string_view kUnits = "kmgt";
  constexpr double kMax = 9e15;  // exact in a double
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string unit(text.substr(digits));
  for (char& letter : unit) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  const std::size_t power = unit.empty() ? 0 : kUnits.find(unit[0]);
  const bool known =
      unit.empty() || (power != std::string_view::npos &&
                       (unit.size() == 1 || unit.substr(1) == "b" || unit.substr(1) == "ib"));
  auto value = parse_double(text.substr(0, digits));
  if (!known || !value) return std::nullopt;
  for (std::size_t i = 0; !unit.empty() && i <= power; ++i) *value *= 1024;
  if (*value > kMax) return std::nullopt;
  return static_cast<std::uint64_t>(*value);
}

std::string fixed(double value, int decimals) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  std::array<char, 700> buffer;  // 309 digits before the point and up to 323 decimals
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::fixed, decimals);
  return {buffer.data(), end.ptr};
}

std::string with_commas(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (value < 0 ? 1 : 0);
       at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

std::optional<std::int64_t> parse_int(std::string_view text) {
  std::int64_t value = 0;
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_double(std::string_view text) {
  double value = 0;
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) return std::nullopt;
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

namespace {

// Characters that control a terminal or the text's layout: C0, DEL, C1, line and paragraph
// separators, and bidirectional controls.
bool is_order(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string printable(std::string_view text, std::size_t limit) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (out.size() >= limit) return out + "...";
    const std::size_t length = utf8_length(text.substr(i));
    if (length > 0 && !is_order(decode_utf8(text.substr(i)))) {
      out += text.substr(i, length);
      i += length;
      continue;
    }
    for (const std::size_t end = i + std::max<std::size_t>(length, 1); i < end; ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      out += std::string("\\x") + kHex[byte >> 4] + kHex[byte & 15];
    }
  }
  return out;
}

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
  unsigned length = 0;
  ensure(EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr) == 1,
         "libcrypto cannot compute SHA-256 here");
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string hex;
  for (unsigned i = 0; i < length; ++i) {
    hex += kHex[digest[i] >> 4];
    hex += kHex[digest[i] & 15];
  }
  return hex;
}

}  // namespace leq
