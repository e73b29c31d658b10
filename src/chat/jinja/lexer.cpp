#include "chat/jinja/syntax.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "chat/jinja/value.h"

namespace leq::jinja {
namespace {

using Type = Token::Type;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// Converts all line ends to "\n" and removes the last one.
std::string with_plain_lines(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      out += text[i];
      continue;
    }
    out += '\n';
    if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string text, std::string_view source) : text_(std::move(text)), source_(source) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) take_piece();
    add(Type::end, {});
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(text_).substr(at_); }

  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail(source_, ": chat template, line ", line_, ": ", parts...);
  }

  void advance(std::size_t bytes) {
    const auto passed = rest().substr(0, bytes);
    line_ += static_cast<std::uint32_t>(std::ranges::count(passed, '\n'));
    at_ += passed.size();
  }

  void add(Type type, std::string text) { tokens_.push_back({type, std::move(text), line_}); }

  // Reads the text up to the next tag, and the tag.
  void take_piece() {
    std::size_t open = at_;
    for (; open + 1 < text_.size(); ++open) {
      const char next = text_[open + 1];
      if (text_[open] == '{' && (next == '%' || next == '{' || next == '#')) break;
    }
    if (open + 1 >= text_.size()) {
      add(Type::data, std::string(rest()));
      at_ = text_.size();
      return;
    }
    const char kind = text_[open + 1];
    const char sign = open + 2 < text_.size() ? text_[open + 2] : '\0';
    const bool has_sign = sign == '-' || sign == '+';
    add_data(open, sign, kind);
    advance(open - at_ + 2 + (has_sign ? 1 : 0));
    if (kind == '#') return skip_comment();
    if (kind == '%' && take_raw()) return;
    add(kind == '%' ? Type::block_begin : Type::print_begin, {});
    take_inside(kind == '%' ? '%' : '}');
  }

  // Adds the text before a tag, without the white space that the tag trims.
  void add_data(std::size_t open, char sign, char kind) {
    std::string_view data = rest().substr(0, open - at_);
    if (sign == '-') {
      data.remove_suffix(trailing_space(data));
    } else if (sign != '+' && kind != '{') {
      const std::size_t newline = data.rfind('\n');
      const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      const auto indent = data.substr(line);
      if ((line > 0 || at_line_start_) && leading_space(indent) == indent.size()) {
        data = data.substr(0, line);
      }
    }
    if (!data.empty()) add(Type::data, std::string(data));
  }

  // Continues after the end of a tag at `close`, skipping the white space that the tag's end trims.
  void close_tag(std::size_t close, bool trims_line) {
    const char sign = close > at_ ? text_[close - 1] : '\0';
    advance(close - at_ + 2);
    std::size_t more = 0;
    if (sign == '-') {
      more = leading_space(rest());
    } else if (trims_line && sign != '+' && rest().starts_with('\n')) {
      more = 1;
    }
    advance(more);
    at_line_start_ = text_[at_ - 1] == '\n';
  }

  void skip_comment() {
    const std::size_t close = text_.find("#}", at_);
    if (close == std::string::npos) wrong("a comment {# without its end");
    close_tag(close, true);
  }

  // Reads {% raw %}...{% endraw %}, if it begins here.
  bool take_raw() {
    std::size_t at = word_end(at_, "raw");
    if (at == 0) return false;
    const bool trims = text_[at] == '-';
    at += trims ? 3 : 2;
    if (trims) at += leading_space(std::string_view(text_).substr(at));
    for (std::size_t open = at; (open = text_.find("{%", open)) != std::string::npos; ++open) {
      const char sign = open + 2 < text_.size() ? text_[open + 2] : '\0';
      const bool has_sign = sign == '-' || sign == '+';
      const std::size_t close = word_end(open + (has_sign ? 3 : 2), "endraw");
      if (close == 0) continue;
      advance(at - at_);
      at_line_start_ = false;
      add_data(open, sign, '%');
      advance(open + 2 - at_);
      close_tag(text_[close] == '-' || text_[close] == '+' ? close + 1 : close, true);
      return true;
    }
    wrong("{% raw %} without its end");
  }

  // The offset of the tag's end if the tag contains only this word from `at` on; otherwise 0.
  std::size_t word_end(std::size_t at, std::string_view word) const {
    const std::string_view text = text_;
    at += leading_space(text.substr(at));
    if (!text.substr(at).starts_with(word)) return 0;
    at += word.size();
    at += leading_space(text.substr(at));
    const auto end = text.substr(at);
    return end.starts_with("%}") || end.starts_with("-%}") || end.starts_with("+%}") ? at : 0;
  }

  // Reads the tokens of a tag up to its end, which begins with `closer`.
  void take_inside(char closer) {
    const std::array<char, 2> close = {closer, '}'};
    const std::string_view end(close.data(), close.size());
    while (true) {
      advance(leading_space(rest()));
      if (rest().empty()) wrong("a tag without its end ", end);
      const bool has_sign = rest()[0] == '-' || (rest()[0] == '+' && closer == '%');
      if (brackets_.empty() && rest().substr(has_sign ? 1 : 0).starts_with(end)) {
        add(closer == '%' ? Type::block_end : Type::print_end, {});
        return close_tag(at_ + (has_sign ? 1 : 0), closer == '%');
      }
      take_token();
    }
  }

  void take_token() {
    const char c = rest()[0];
    if (c == '\'' || c == '"') return take_literal(c);
    if (is_digit(c)) return take_number();
    if (begins_name(c)) {
      std::size_t length = 1;
      while (length < rest().size() && (begins_name(rest()[length]) || is_digit(rest()[length]))) {
        ++length;
      }
      add(Type::name, std::string(rest().substr(0, length)));
      return advance(length);
    }
    constexpr std::array<std::string_view, 25> kSigns = {
        "**", "//", "==", "!=", "<=", ">=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    const auto sign =
        std::ranges::find_if(kSigns, [&](std::string_view s) { return rest().starts_with(s); });
    if (sign == kSigns.end()) wrong("unexpected ", printable(rest().substr(0, 8)));
    balance(*sign);
    add(Type::sign, std::string(*sign));
    advance(sign->size());
  }

  void balance(std::string_view sign) {
    if (sign == "(" || sign == "[" || sign == "{")
      brackets_ += sign == "(" ? ')' : sign == "[" ? ']' : '}';
    if (sign != ")" && sign != "]" && sign != "}") return;
    if (brackets_.empty() || brackets_.back() != sign[0]) wrong("unexpected ", sign);
    brackets_.pop_back();
  }

  void take_number() {
    std::size_t length = 0;
    std::string digits;
    const auto take_digits = [&] {
      while (length < rest().size() && (is_digit(rest()[length]) || rest()[length] == '_')) {
        if (rest()[length] != '_') digits += rest()[length];
        ++length;
      }
    };
    take_digits();
    const auto digit_at = [&](std::size_t i) { return i < rest().size() && is_digit(rest()[i]); };
    Type type = Type::integer;
    if (rest().substr(length).starts_with('.') && digit_at(length + 1)) {
      type = Type::real;
      digits += '.';
      ++length;
      take_digits();
    }
    if (length < rest().size() && (rest()[length] == 'e' || rest()[length] == 'E')) {
      const bool has_sign =
          length + 1 < rest().size() && (rest()[length + 1] == '+' || rest()[length + 1] == '-');
      if (digit_at(length + (has_sign ? 2 : 1))) {
        type = Type::real;
        digits += 'e';
        if (has_sign) digits += rest()[length + 1];
        length += has_sign ? 2 : 1;
        take_digits();
      }
    }
    if (length < rest().size() && begins_name(rest()[length])) {
      wrong("unexpected ", printable(rest().substr(0, length + 1)));
    }
    const bool fits =
        type == Type::integer ? parse_int(digits).has_value() : parse_double(digits).has_value();
    if (!fits) wrong("the number ", printable(digits), " is too large");
    add(type, digits);
    advance(length);
  }

  void take_literal(char quote) {
    std::size_t end = 1;
    while (end < rest().size() && rest()[end] != quote) end += rest()[end] == '\\' ? 2 : 1;
    if (end >= rest().size()) wrong("a text without its closing ", std::string_view(&quote, 1));
    add(Type::text, unescaped(rest().substr(1, end - 1)));
    advance(end + 1);
  }

  // Replaces Python's escape sequences.
  std::string unescaped(std::string_view literal) const {
    std::string out;
    for (std::size_t i = 0; i < literal.size(); ++i) {
      if (literal[i] != '\\') {
        out += literal[i];
        continue;
      }
      const char c = literal[++i];  // exists, since the literal is complete
      constexpr std::string_view kNames = "abfnrtv\\'\"\n", kBytes = "\a\b\f\n\r\t\v\\'\"";
      const std::size_t named = kNames.find(c);
      if (named == kBytes.size()) continue;  // an escaped line end is removed
      if (named != std::string_view::npos) {
        out += kBytes[named];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        i = append_code(out, literal, i + 1, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
      } else if (c >= '0' && c <= '7') {
        std::size_t length = 1;
        while (length < 3 && i + length < literal.size() && literal[i + length] >= '0' &&
               literal[i + length] <= '7') {
          ++length;
        }
        i = append_code(out, literal, i, length, 8);
      } else if (c == 'N') {
        wrong("\\N{...} in a text is not supported");
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  // Appends the character with this hexadecimal code; returns the offset of its last digit.
  std::size_t append_code(std::string& out, std::string_view literal, std::size_t at,
                          std::size_t digits, int base) const {
    const auto text = literal.substr(at, digits);
    std::uint32_t code = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), code, base);
    const bool is_character = code < 0x110000 && (code < 0xd800 || code > 0xdfff);
    if (text.size() < digits || read.ptr != text.data() + digits || !is_character) {
      wrong("a text with an escape that is no character");
    }
    append_utf8(out, code);
    return at + digits - 1;
  }

  std::string text_;
  std::string_view source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1;
  bool at_line_start_ = true;
  std::string brackets_;  // the expected closers of open brackets
};

}  // namespace

std::vector<Token> tokenize(std::string_view source_text, std::string_view source) {
  return Lexer(with_plain_lines(source_text), source).run();
}

}  // namespace leq::jinja
