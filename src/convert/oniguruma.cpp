#include "convert/oniguruma.h"

#include <cctype>
#include <cstddef>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr std::string_view kWordClass = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kHexClass = "0-9a-fA-F";

class Translation {
 public:
  Translation(std::string_view pattern, std::string_view source)
      : pattern_(pattern), source_(source) {}

  std::string run() {
    while (at_ < pattern_.size()) step();
    return std::move(out_);
  }

 private:
  std::string_view rest() const { return pattern_.substr(at_); }
  void put(std::string_view text, std::size_t taken) {
    out_ += text;
    at_ += taken;
  }
  [[noreturn]] void refuse(std::string_view what) const {
    fail(source_, ": pattern \"", printable(pattern_), "\" has ", what, " at offset ", at_,
         ", which is not supported");
  }

  void step() {
    const char c = pattern_[at_];
    if (c == '\\' && rest().size() > 1) return escape(pattern_[at_ + 1]);
    if (in_class_) {
      in_class_ = c != ']' || at_ == class_start_;
      return put(rest().substr(0, 1), 1);
    }
    if (c == '[') {
      in_class_ = true;
      class_start_ = at_ + (rest().starts_with("[^") ? 2 : 1);
      return put(rest().substr(0, class_start_ - at_), class_start_ - at_);
    }
    if (c == '^') return put("(?m:^)", 1);
    if (c == '$') return put("(?m:$)", 1);
    if (c == '{') return braces();
    if (rest().starts_with("(?")) group();
    put(rest().substr(0, 1), 1);
  }

  void escape(char letter) {
    const std::string inner = std::string(letter == 'h' ? kHexClass : kWordClass);
    switch (letter) {
      case 'h':
      case 'w':
        return put(in_class_ ? inner : "[" + inner + "]", 2);
      case 'H':
      case 'W':
        if (in_class_) refuse(letter == 'H' ? "\\H in a class" : "\\W in a class");
        return put("[^" + std::string(letter == 'H' ? kHexClass : kWordClass) + "]", 2);
      case 'b':
      case 'B': {
        if (in_class_) return put(rest().substr(0, 2), 2);
        const std::string word = "[" + std::string(kWordClass) + "]";
        const std::string same =
            "(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + ")";
        const std::string other =
            "(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + ")";
        return put("(?:" + (letter == 'b' ? other : same) + ")", 2);
      }
      default:
        return put(rest().substr(0, 2), 2);
    }
  }

  // Only {n}, {n,}, {n,m} and {,m} are quantifiers. In Ruby, a + after one is not possessive.
  void braces() {
    const std::size_t end = rest().find('}');
    const std::string_view inner = end == std::string_view::npos ? "" : rest().substr(1, end - 1);
    const std::size_t comma = inner.find(',');
    const bool digits = inner.find_first_not_of("0123456789,") == std::string_view::npos;
    const bool counts = digits && inner.size() > (comma == std::string_view::npos ? 0 : 1);
    if (!counts) return put("{", 1);
    if (rest().substr(end + 1).starts_with('+')) refuse("a counted repeat with + behind it");
    put("{" + std::string(comma == 0 ? "0" : "") + std::string(inner) + "}", end + 1);
  }

  // In Ruby's syntax, (?m) makes a dot match line ends.
  void group() const {
    std::size_t at = 2;
    while (at < rest().size() &&
           (std::isalpha(static_cast<unsigned char>(rest()[at])) != 0 || rest()[at] == '-')) {
      if (rest()[at] == 'm') refuse("the option m");
      ++at;
    }
  }

  std::string_view pattern_, source_;
  std::size_t at_ = 0, class_start_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

std::string translated_oniguruma(std::string_view pattern, std::string_view source) {
  return Translation(pattern, source).run();
}

}  // namespace leq
