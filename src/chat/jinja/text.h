// A text that records for each byte whether the template or the conversation wrote it: only bytes
// of the template may form special tokens. Slices and concatenations keep the origin; texts that
// are computed from others (upper case, JSON) belong to the conversation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace leq::jinja {

class Text {
 public:
  Text() = default;
  // Text that the template wrote itself.
  static Text own(std::string_view bytes) { return Text(bytes, '\1'); }
  // Text of the conversation, or text that is computed from other texts.
  static Text foreign(std::string_view bytes) { return Text(bytes, '\0'); }

  std::string_view bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool is_own(std::size_t at) const { return own_[at] != '\0'; }

  Text slice(std::size_t from, std::size_t length) const;
  void append(const Text& other);
  bool operator==(const Text& other) const { return bytes_ == other.bytes_; }

  // Marks the result of |safe, which is not escaped again; text added to it is escaped.
  bool safe = false;

 private:
  Text(std::string_view bytes, char own) : bytes_(bytes), own_(bytes.size(), own) {}

  std::string bytes_;
  std::string own_;  // origin of each byte of bytes_
};

enum class Ends : std::uint8_t { both, left, right };
// Strips white space (all of Unicode's, as in Python), or the given characters, from the ends.
Text stripped(const Text& text, Ends ends);
Text stripped(const Text& text, Ends ends, std::string_view characters);
// The number of bytes of white space at the beginning of a text.
std::size_t leading_space(std::string_view bytes);
std::size_t trailing_space(std::string_view bytes);

// Splits at most `most` times, from the left; unlimited if negative. `from` must not be empty.
std::vector<Text> split(const Text& text, std::string_view separator, std::int64_t most);
std::vector<Text> split_right(const Text& text, std::string_view separator, std::int64_t most);
// Splits at white space, without empty pieces.
std::vector<Text> split_space(const Text& text, std::int64_t most);
std::vector<Text> split_lines(const Text& text, bool keep_ends);
Text replaced(const Text& text, const Text& from, const Text& to, std::int64_t most);
Text escaped(const Text& text);  // for HTML

// Counts code points; an invalid UTF-8 byte counts as one character.
std::size_t count_characters(std::string_view bytes);
std::vector<std::size_t> character_starts(std::string_view bytes);  // and the end

}  // namespace leq::jinja
