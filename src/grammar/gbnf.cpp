// The parser of GBNF, the notation of llama.cpp's grammars.
#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "grammar/grammar.h"

namespace leq {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr std::size_t kMaxBytes = std::size_t{4} << 20;
constexpr int kMaxDepth = 100;  // limit of nested brackets

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfReader {
 public:
  GbnfReader(std::string_view text, std::string_view source, GrammarStop stopped)
      : text_(text), source_(source), builder_(source, std::move(stopped)) {}

  std::shared_ptr<const Grammar> read() {
    require(text_.size() <= kMaxBytes, source_, ": a grammar of ", text_.size(), " bytes, at most ",
            kMaxBytes, " are accepted");
    if (const auto bad = first_invalid_utf8(text_)) {
      at_ = *bad;
      wrong("expected UTF-8");
    }
    skip_space(Lines::skipped);
    while (!rest().empty()) {
      const std::string_view name = take_name();
      if (name.empty()) wrong("expected the name of a rule");
      skip_space(Lines::kept);
      if (!skip("::=")) wrong("expected ::= after the rule ", printable(name));
      skip_space(Lines::skipped);
      builder_.define(builder_.rule(name), alternatives(Lines::kept));
      if (!rest().empty() && !at_line_end()) wrong("expected the end of the rule");
      skip_space(Lines::skipped);
    }
    const std::int32_t root = builder_.rule("root");
    require(builder_.is_defined(root), source_, ": there is no rule root, where texts begin");
    return builder_.finish(root);
  }

 private:
  enum class Lines { kept, skipped };

  std::string_view rest() const { return text_.substr(at_); }
  bool at_line_end() const { return rest().starts_with('\n') || rest().starts_with('\r'); }

  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    const auto line = 1 + std::ranges::count(text_.substr(0, at_), '\n');
    const std::string found =
        rest().empty() ? "the end" : "'" + printable(rest().substr(0, 12)) + "'";
    fail(source_, ": line ", line, ": ", parts..., ", found ", found);
  }

  bool skip(std::string_view word) {
    const bool found = rest().starts_with(word);
    if (found) at_ += word.size();
    return found;
  }

  void skip_space(Lines lines) {
    while (!rest().empty()) {
      const char c = rest()[0];
      if (c == '#') {
        at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
      } else if (c == ' ' || c == '\t' || (lines == Lines::skipped && at_line_end())) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view take_name() {
    const std::size_t from = at_;
    while (!rest().empty() && is_name(rest()[0])) ++at_;
    return text_.substr(from, at_ - from);
  }

  Expr alternatives(Lines lines) {
    if (++depth_ > kMaxDepth) wrong("brackets nested deeper than ", kMaxDepth);
    std::vector<Expr> all = {sequence(lines)};
    while (skip("|")) {
      skip_space(Lines::skipped);
      all.push_back(sequence(lines));
    }
    --depth_;
    return all.size() == 1 ? all[0] : builder_.choice(std::move(all));
  }

  Expr sequence(Lines lines) {
    std::vector<Expr> parts;
    while (true) {
      skip_space(lines);
      const auto part = item();
      if (!part) break;
      parts.push_back(repeated(*part, lines));
    }
    return builder_.sequence(std::move(parts));
  }

  std::optional<Expr> item() {
    if (rest().empty()) return std::nullopt;
    if (skip("\"")) return literal();
    if (skip("[")) return characters();
    if (skip(".")) return builder_.chars({{0, kLastCharacter}});
    if (skip("(")) {
      skip_space(Lines::skipped);
      const Expr inner = alternatives(Lines::skipped);
      skip_space(Lines::skipped);
      if (!skip(")")) wrong("expected )");
      return inner;
    }
    if (const std::string_view name = take_name(); !name.empty()) {
      return builder_.call(builder_.rule(name));
    }
    if (rest()[0] == '<' || rest()[0] == '!') wrong("tokens in a grammar are not supported");
    return std::nullopt;
  }

  Expr repeated(Expr part, Lines lines) {
    while (true) {
      skip_space(lines);
      if (skip("*")) {
        part = builder_.repeat(part, 0, GrammarBuilder::kNoLimit);
      } else if (skip("+")) {
        part = builder_.repeat(part, 1, GrammarBuilder::kNoLimit);
      } else if (skip("?")) {
        part = builder_.optional(part);
      } else if (skip("{")) {
        part = counted(part);
      } else {
        return part;
      }
    }
  }

  std::int64_t number() {
    skip_space(Lines::kept);
    std::int64_t value = 0;
    const auto digits = rest();
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const auto length = static_cast<std::size_t>(read.ptr - digits.data());
    if (length == 0 || value < 0) wrong("expected a number of times");
    if (read.ec != std::errc() || value > GrammarBuilder::kMaxTimes)
      wrong("expected at most ", GrammarBuilder::kMaxTimes, " times");
    at_ += length;
    skip_space(Lines::kept);
    return value;
  }

  Expr counted(Expr part) {
    const std::int64_t least = number();
    std::int64_t most = least;
    if (skip(",")) {
      skip_space(Lines::kept);
      most = rest().starts_with('}') ? GrammarBuilder::kNoLimit : number();
    }
    if (!skip("}")) wrong("expected } after the number of times");
    if (most != GrammarBuilder::kNoLimit && most < least)
      wrong("at most fewer times than at least");
    return builder_.repeat(part, least, most);
  }

  Expr literal() {
    std::string bytes;
    while (!skip("\"")) append_utf8(bytes, character("\""));
    return builder_.text(bytes);
  }

  Expr characters() {
    const bool negated = skip("^");
    std::vector<CharRange> ranges;
    while (!skip("]")) {
      CharRange range;
      range.first = range.last = character("]");
      if (rest().starts_with('-') && !rest().starts_with("-]")) {
        ++at_;
        range.last = character("]");
        if (range.last < range.first) wrong("a range of characters from the larger to the smaller");
      }
      ranges.push_back(range);
    }
    return builder_.chars(negated ? inverted(std::move(ranges)) : ranges);
  }

  // The next character of a literal or a class that is terminated by `end`.
  char32_t character(std::string_view end) {
    if (rest().empty()) wrong("expected ", end);
    if (skip("\\")) return escaped();
    const char32_t c = decode_utf8(rest());
    at_ += utf8_length(rest());
    return c;
  }

  char32_t escaped() {
    if (rest().empty()) wrong("expected what \\ comes before");
    const char c = rest()[0];
    ++at_;
    constexpr std::string_view kNames = "nrt\\\"[]-^", kCodes = "\n\r\t\\\"[]-^";
    if (const auto named = kNames.find(c); named != std::string_view::npos) {
      return static_cast<char32_t>(kCodes[named]);
    }
    if (c == 'x' || c == 'u' || c == 'U') return code(c == 'x' ? 2 : c == 'u' ? 4 : 8);
    --at_;
    wrong("an escape that is not known");
  }

  char32_t code(std::size_t digits) {
    const auto text = rest().substr(0, digits);
    std::uint32_t value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    const bool is_character = value <= kLastCharacter && (value < 0xd800 || value > 0xdfff);
    if (text.size() < digits || read.ptr != text.data() + digits || !is_character) {
      wrong("expected ", digits, " hexadecimal digits of a character");
    }
    at_ += digits;
    return value;
  }

  std::string_view text_, source_;
  GrammarBuilder builder_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::shared_ptr<const Grammar> Grammar::from_gbnf(std::string_view text, std::string_view source,
                                                  GrammarStop stopped) {
  return GbnfReader(text, source, std::move(stopped)).read();
}

}  // namespace leq
