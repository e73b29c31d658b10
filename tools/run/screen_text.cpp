#include "tools/run/screen_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <cwchar>
#include <cwctype>
#include <utility>

#include "base/text.h"

namespace leq::run {
namespace {

constexpr std::string_view kPlain = "\033[0m";
constexpr std::array<std::string_view, 2> kTags = {"<think>", "</think>"};
constexpr std::size_t kTab = 8;
// Punctuation that must not begin a line of Chinese or Japanese text.
constexpr std::u32string_view kNotFirst = U"、。，．！？：；）」』】〉》〕";

bool is_space(char32_t c) { return c == U' ' || c == U'\t' || c == U'\n'; }

// `-`, `*`, `+`, `12.` or `3)`.
bool is_list_mark(std::string_view word) {
  if (word == "-" || word == "*" || word == "+") return true;
  return word.size() > 1 && (word.back() == '.' || word.back() == ')') &&
         std::ranges::all_of(word.substr(0, word.size() - 1),
                             [](char c) { return c >= '0' && c <= '9'; });
}

// Length of the character at the start; 1 for an invalid byte, 0 if more bytes are needed.
std::size_t character_length(std::string_view text, bool last) {
  if (const std::size_t length = utf8_length(text); length > 0) return length;
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t expected = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
  return !last && text.size() < expected ? 0 : 1;
}

}  // namespace

std::size_t columns_of(char32_t character) {
  return static_cast<std::size_t>(std::max(wcwidth(static_cast<wchar_t>(character)), 0));
}

void use_utf8_characters() {
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) {
    std::setlocale(LC_CTYPE, "C.UTF-8");
  }
}

std::size_t terminal_columns() {
  winsize size = {};
  constexpr std::size_t kUnknown = 80;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUnknown;
}

std::string ScreenText::feed(std::string_view text) {
  if (continues_) {  // a blank between two words would be taken for an indentation
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    continues_ = text.empty();
  }
  input_ += text;
  while (!input_.empty() && take(false)) {
  }
  return std::exchange(out_, {});
}

std::string ScreenText::finish() {
  while (!input_.empty()) take(true);
  end_word();
  std::string rest = std::exchange(out_, {});
  if (!style_.empty()) rest += kPlain;
  const std::size_t columns = columns_;
  const bool within_line = column_ > 0;
  *this = ScreenText(options_);
  columns_ = columns;
  continues_ = within_line;
  return rest;
}

std::string plain_screen_text(std::string_view text) {
  ScreenText screen({});
  std::string shown = screen.feed(text);
  return shown + screen.finish();
}

// Interprets one character or mark; returns false if more input decides what it is.
bool ScreenText::take(bool last) {
  if (at_line_start_) return take_line_start(last);
  const char c = input_.front();
  if (c == '<') return take_tag(last);
  const bool inline_marks = block_ == Block::text || block_ == Block::heading;
  if (options_.styles && options_.markdown && inline_marks &&
      (c == '`' || (c == '*' && code_marks_ == 0))) {
    return take_marks(c, last);
  }
  const std::size_t length = character_length(input_, last);
  if (length == 0) return false;
  const bool valid = utf8_length(input_) > 0;
  const std::string character = input_.substr(0, length);
  put(valid ? std::string_view(character) : "\xEF\xBF\xBD",
      valid ? decode_utf8(character) : U'\uFFFD');
  input_.erase(0, length);
  return true;
}

// Recognizes fences of code and headings.
bool ScreenText::take_line_start(bool last) {
  if (!options_.markdown) {
    at_line_start_ = false;
    return true;
  }
  const std::size_t start = std::min(input_.find_first_not_of(' '), input_.size());
  const std::string_view rest = std::string_view(input_).substr(start);
  const std::size_t marks =
      std::min(rest.find_first_not_of(rest.starts_with('#') ? '#' : '`'), rest.size());
  const bool undecided = marks == rest.size() && (rest.empty() || rest.front() == '#' || marks < 3);
  if (undecided && !last) return false;
  at_line_start_ = false;
  if (marks >= 3 && rest.starts_with('`')) {
    in_code_block_ = !in_code_block_;
    block_ = Block::fence;
  } else if (in_code_block_) {
    block_ = Block::code;
  } else {
    const bool heading = rest.starts_with('#') && marks <= 6 && rest.substr(marks).starts_with(' ');
    block_ = heading ? Block::heading : Block::text;
  }
  return true;
}

// A run of asterisks or backticks.
bool ScreenText::take_marks(char mark, bool last) {
  const std::size_t count = std::min(input_.find_first_not_of(mark), input_.size());
  const std::string_view after = std::string_view(input_).substr(count);
  if (!last && (after.empty() || character_length(after, last) == 0)) return false;
  const bool decoded = utf8_length(after) > 0;
  toggle(count, mark, decoded ? decode_utf8(after) : U'\n');
  input_.erase(0, count);
  return true;
}

// Opens or closes bold or code; shows the marks where they are neither.
void ScreenText::toggle(std::size_t marks, char mark, char32_t next) {
  const bool word_before = !is_space(before_) && (std::iswalnum(static_cast<wint_t>(before_)) != 0);
  if (mark == '`' && code_marks_ == marks) {
    code_marks_ = 0;
  } else if (mark == '`' && code_marks_ == 0 && !is_space(next)) {
    code_marks_ = marks;
  } else if (mark == '*' && marks >= 2 && bold_ && !is_space(before_)) {
    bold_ = false;
  } else if (mark == '*' && marks >= 2 && !bold_ && !is_space(next) && !word_before) {
    bold_ = true;
  } else {
    for (std::size_t i = 0; i < marks; ++i)
      put(std::string(1, mark), static_cast<unsigned char>(mark));
    return;
  }
  before_ = U'.';  // a mark separates words
}

// The tags of reasoning, which are dimmed too.
bool ScreenText::take_tag(bool last) {
  const std::string_view tag = kTags[thinking_ ? 1 : 0];
  if (!last && input_.size() < tag.size() && tag.starts_with(input_)) return false;
  const bool found = options_.styles && input_.starts_with(tag);
  if (found && !thinking_) thinking_ = true;
  const std::size_t count = found ? tag.size() : 1;
  for (std::size_t i = 0; i < count; ++i) {
    put(input_.substr(i, 1), static_cast<unsigned char>(input_[i]));
  }
  if (found && tag == kTags[1]) thinking_ = false;
  input_.erase(0, count);
  return true;
}

void ScreenText::put_style() {
  if (!options_.styles) return;
  std::string style;
  if (thinking_ || block_ == Block::fence) style += "\033[2m";
  if (bold_ || block_ == Block::heading) style += "\033[1m";
  if (code_marks_ > 0 || block_ == Block::code) style += "\033[36m";
  if (style == style_) return;
  word_ += std::string(style_.empty() ? "" : kPlain) + style;
  style_ = style;
}

void ScreenText::put(std::string_view character, char32_t code) {
  before_ = code;
  if (code == U'\n') return end_line();
  if (code == U' ' || code == U'\t') {
    end_word();
    spaces_ += code == U' ' ? 1 : kTab - (column_ + spaces_) % kTab;
    if (!wraps()) end_word();
    return;
  }
  if (code == U'\r') return;
  std::string shown(character);
  std::size_t columns = columns_of(code);
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) {  // must not command the terminal
    shown = printable(character);
    columns = shown.size();
  }
  if (columns == 2 && kNotFirst.find(code) == std::u32string_view::npos) end_word();
  put_style();
  word_ += shown;
  word_columns_ += columns;
  if (!wraps()) end_word();
}

// Places the word on this line or the next.
void ScreenText::end_word() {
  const bool fits = column_ + spaces_ + word_columns_ <= columns_;
  if (wraps() && word_columns_ > 0 && !fits && column_ > indent_) {
    out_ += '\n' + std::string(indent_, ' ');
    column_ = indent_;
    spaces_ = 0;
  }
  if (word_.empty() && wraps()) return;  // spaces at the end of a line wait for a word
  if (first_word_ && word_columns_ > 0) {
    indent_ = column_ + spaces_ + (is_list_mark(word_) ? word_columns_ + 1 : 0);
    if (indent_ > columns_ / 2) indent_ = 0;
    first_word_ = false;
  }
  out_ += std::string(spaces_, ' ') + word_;
  column_ += spaces_ + word_columns_;
  if (column_ > columns_) column_ = (column_ - 1) % columns_ + 1;  // the terminal broke the word
  spaces_ = word_columns_ = 0;
  word_.clear();
}

void ScreenText::end_line() {
  end_word();
  bold_ = false;
  code_marks_ = 0;
  block_ = Block::text;
  if (!thinking_ && !style_.empty()) {
    out_ += kPlain;
    style_.clear();
  }
  out_ += '\n';
  column_ = indent_ = spaces_ = 0;
  at_line_start_ = first_word_ = true;
}

}  // namespace leq::run
