// Letters of ASCII in the other case; all other bytes stay, whatever the locale.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace leq {

constexpr char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
constexpr char ascii_upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

inline std::string ascii_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = ascii_lower(c);
  return out;
}
inline std::string ascii_upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = ascii_upper(c);
  return out;
}

// Whether the texts differ in the case of letters at most.
constexpr bool same_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, {}, [](char c) { return ascii_lower(c); }, [](char c) { return ascii_lower(c); });
}

}  // namespace leq
