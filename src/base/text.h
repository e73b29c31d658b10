// Small text helpers: UTF-8 checks, splitting, and human-readable numbers and sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace leq {

// Length in bytes of the well-formed UTF-8 character at the start of `text`, 0 if there is none
// (invalid, overlong, surrogate, truncated or empty).
std::size_t utf8_length(std::string_view text);
// Offset of the first byte that is not part of well-formed UTF-8; nullopt if there is none.
std::optional<std::size_t> first_invalid_utf8(std::string_view text);
// Decodes the first well-formed character; utf8_length(text) must not be 0.
char32_t decode_utf8(std::string_view text);
void append_utf8(std::string& out, char32_t character);

std::vector<std::string_view> split(std::string_view text, std::string_view separator);
// Joins {"a", "b"} to "a, b".
std::string join(std::span<const std::string> parts, std::string_view separator = ", ");
std::string_view trim(std::string_view text);  // ASCII white space at both ends
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

// Formats with decimal units and three significant digits: "1.10 GB", "512 B".
std::string human_bytes(std::uint64_t bytes);
// Sizes as users type them: "8G", "900M", "1.5GiB", "64k", "123456"; each unit is 1024 times the
// next smaller one. nullopt on anything else.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
// A size as parse_bytes reads it, and in decimal units: "24G (25.8 GB)"; only the latter if no
// binary unit expresses the size in two decimals.
std::string given_bytes(std::uint64_t bytes);
// Formatted with a fixed number of decimals, independent of the locale.
std::string fixed(double value, int decimals);
// Formats 12345678 as "12,345,678".
std::string with_commas(std::int64_t value);
// Parses a finite number that fills the whole string, independent of the locale; otherwise nullopt.
std::optional<std::int64_t> parse_int(std::string_view text);
std::optional<double> parse_double(std::string_view text);
// A text made safe for a one-line error or a terminal: invalid UTF-8, control characters and
// bidirectional characters are written as \xNN, and the text is cut at `limit` bytes.
std::string printable(std::string_view text, std::size_t limit = 80);

// SHA-256 as lower-case hex, which identifies a data set or a calibration text.
std::string sha256_hex(std::string_view bytes);

}  // namespace leq
