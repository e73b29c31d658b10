// Regular expressions of JSON Schema's `pattern`: the part of ECMA-262 syntax that describes
// regular languages.
#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text.h"
#include "grammar/json_parts.h"

namespace leq {
namespace {

using Expr = GrammarBuilder::Expr;
using Ranges = std::vector<CharRange>;

constexpr int kMostDepth = 60;
constexpr std::int64_t kMostTimes = 2000;

const Ranges kDigits = {{'0', '9'}};
const Ranges kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
// kSpace: white space in both ECMA-262 and Python; kNoSpace: white space in neither.
const Ranges kSpace = {{'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},
                       {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029},
                       {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}};
const Ranges kNoSpace = inverted({{'\t', '\r'},
                                  {0x1c, ' '},
                                  {0x85, 0x85},
                                  {0xa0, 0xa0},
                                  {0x1680, 0x1680},
                                  {0x2000, 0x200a},
                                  {0x2028, 0x2029},
                                  {0x202f, 0x202f},
                                  {0x205f, 0x205f},
                                  {0x3000, 0x3000},
                                  {0xfeff, 0xfeff}});

const Ranges kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class PatternReader {
 public:
  PatternReader(GrammarBuilder& builder, JsonParts& parts, std::string_view pattern,
                std::string_view place)
      : b_(builder), parts_(parts), text_(pattern), place_(place) {}

  Expr read() {
    const Expr all = alternatives();
    if (!rest().empty()) wrong("a bracket too many");
    return all;
  }

 private:
  std::string_view rest() const { return text_.substr(at_); }
  bool skip(std::string_view word) {
    const bool found = rest().starts_with(word);
    if (found) at_ += word.size();
    return found;
  }
  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail(place_, ": pattern '", printable(text_), "', offset ", at_, ": ", parts...);
  }

  Expr anything() { return b_.repeat(parts_.character(), 0, GrammarBuilder::kNoLimit); }

  // Anchors are allowed only at the ends of the outermost alternatives.
  Expr alternatives() {
    if (++depth_ > kMostDepth) wrong("brackets nested deeper than ", kMostDepth);
    std::vector<Expr> ways;
    do {
      std::vector<Expr> parts;
      const bool outer = depth_ == 1;
      if (outer && !skip("^")) parts.push_back(anything());
      bool ended = false;
      while (!ended && !rest().empty() && rest()[0] != '|' && rest()[0] != ')') {
        ended = outer && skip("$");
        if (!ended) parts.push_back(repeated(item()));
      }
      if (ended && !rest().empty() && rest()[0] != '|') wrong("$ in the middle is not supported");
      if (outer && !ended) parts.push_back(anything());
      ways.push_back(b_.sequence(std::move(parts)));
    } while (skip("|"));
    --depth_;
    return ways.size() == 1 ? ways[0] : b_.choice(std::move(ways));
  }

  Expr item() {
    if (skip("(")) {
      if (rest().starts_with("?") && !skip("?:"))
        wrong("only (?: of the groups with ? is supported");
      const Expr inner = alternatives();
      if (!skip(")")) wrong("expected )");
      return inner;
    }
    if (skip("[")) return parts_.written_chars(bracket());
    if (skip(".")) return parts_.written_chars(inverted(kLineEnds));
    constexpr std::string_view kTaken = "^$*+?{";
    if (kTaken.find(rest()[0]) != std::string_view::npos) {
      wrong("'", rest().substr(0, 1), "' is not supported here");
    }
    return parts_.written_chars(one());
  }

  Expr repeated(Expr part) {
    std::int64_t least = 1, most = 1;
    if (skip("*")) {
      least = 0, most = GrammarBuilder::kNoLimit;
    } else if (skip("+")) {
      most = GrammarBuilder::kNoLimit;
    } else if (skip("?")) {
      least = 0;
    } else if (skip("{")) {
      least = most = number();
      if (skip(",")) most = rest().starts_with('}') ? GrammarBuilder::kNoLimit : number();
      if (!skip("}")) wrong("expected }");
      if (most != GrammarBuilder::kNoLimit && most < least)
        wrong("at most fewer times than at least");
    } else {
      return part;
    }
    skip("?");  // a lazy quantifier matches the same texts
    return b_.repeat(part, least, most);
  }

  std::int64_t number() {
    std::int64_t value = -1;
    const auto digits = rest();
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (read.ec != std::errc() || value < 0 || value > kMostTimes) {
      wrong("expected a number of times, at most ", kMostTimes);
    }
    at_ += static_cast<std::size_t>(read.ptr - digits.data());
    return value;
  }

  Ranges bracket() {
    const bool negated = skip("^");
    Ranges ranges;
    while (!skip("]")) {
      if (rest().empty()) wrong("expected ]");
      const Ranges first = one();
      if (first.size() == 1 && first[0].first == first[0].last && rest().starts_with('-') &&
          !rest().starts_with("-]")) {
        ++at_;
        if (rest().empty()) wrong("expected ]");
        const Ranges last = one();
        if (last.size() != 1 || last[0].first != last[0].last || last[0].first < first[0].first) {
          wrong("a range of characters that is none");
        }
        ranges.push_back({first[0].first, last[0].first});
        continue;
      }
      ranges.insert(ranges.end(), first.begin(), first.end());
    }
    return negated ? inverted(std::move(ranges)) : ranges;
  }

  // One character, or the class of characters of an escape such as \d.
  Ranges one() {
    if (!skip("\\")) {
      const std::size_t length = utf8_length(rest());
      if (length == 0) wrong("expected UTF-8");
      const char32_t c = decode_utf8(rest());
      at_ += length;
      return {{c, c}};
    }
    if (rest().empty()) wrong("expected what \\ comes before");
    const char c = rest()[0];
    ++at_;
    constexpr std::string_view kNames = "nrtfv0", kCodes("\n\r\t\f\v\0", 6);
    if (const auto named = kNames.find(c); named != std::string_view::npos) {
      const auto code = static_cast<char32_t>(kCodes[named]);
      return {{code, code}};
    }
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return inverted(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return inverted(kWord);
      case 's':
        return kSpace;
      case 'S':
        return kNoSpace;
      case 'x':
        return code(2);
      case 'u':
        return code(4);
      default:
        break;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9');
    if (letter || static_cast<unsigned char>(c) >= 0x80) {
      --at_;
      wrong("\\", printable(rest().substr(0, 1)), " is not supported");
    }
    return {{static_cast<char32_t>(c), static_cast<char32_t>(c)}};
  }

  Ranges code(std::size_t digits) {
    const auto text = rest().substr(0, digits);
    std::uint32_t value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (text.size() < digits || read.ptr != text.data() + digits ||
        (value >= 0xd800 && value <= 0xdfff)) {
      wrong("expected ", digits, " hexadecimal digits of a character");
    }
    at_ += digits;
    return {{value, value}};
  }

  GrammarBuilder& b_;
  JsonParts& parts_;
  std::string_view text_, place_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

GrammarBuilder::Expr pattern_expression(GrammarBuilder& builder, JsonParts& parts,
                                        std::string_view pattern, std::string_view place) {
  return PatternReader(builder, parts, pattern, place).read();
}

}  // namespace leq
