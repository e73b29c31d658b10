// Prepares a streamed reply for a terminal: words are wrapped at its width, Markdown's bold,
// headings and code become styles, and reasoning is dimmed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace leq::run {

// Number of columns that a character takes; 0 if it is not printable. Depends on the locale.
std::size_t columns_of(char32_t character);

// Sets the locale of characters to UTF-8, which columns_of needs; numbers stay in the C locale.
void use_utf8_characters();

// Width of the terminal of standard error, or 80.
std::size_t terminal_columns();

struct ScreenOptions {
  bool styles = false;    // escape codes, for reasoning and Markdown
  bool markdown = false;  // marks that become styles are left out; code is not wrapped
  bool wrap = false;
};

class ScreenText {
 public:
  explicit ScreenText(const ScreenOptions& options) : options_(options) {}

  void set_columns(std::size_t columns) { columns_ = columns; }
  void set_wrap(bool on) { options_.wrap = on; }
  // Returns what can be shown. The last word is kept until it is complete.
  std::string feed(std::string_view text);
  // Returns the rest and resets the styles and the line. If it ends within a line, later text
  // begins a line of its own, without the blank before it.
  std::string finish();

 private:
  enum class Block : unsigned char { text, heading, fence, code };

  bool wraps() const { return options_.wrap && block_ != Block::fence && block_ != Block::code; }
  bool take(bool last);
  bool take_line_start(bool last);
  bool take_marks(char mark, bool last);
  bool take_tag(bool last);
  void toggle(std::size_t marks, char mark, char32_t next);
  void put(std::string_view character, char32_t code);
  void put_style();
  void end_word();
  void end_line();

  ScreenOptions options_;
  std::size_t columns_ = 80;
  std::string input_;  // not yet interpreted
  std::string out_;
  std::string word_;  // interpreted, not yet placed
  std::size_t word_columns_ = 0;
  std::size_t spaces_ = 0;  // before the word
  std::size_t column_ = 0;
  std::size_t indent_ = 0;  // of the lines that continue this one
  char32_t before_ = U'\n';
  Block block_ = Block::text;
  bool in_code_block_ = false;
  bool at_line_start_ = true;
  bool first_word_ = true;
  bool continues_ = false;  // the text before finish() ended within a line
  bool bold_ = false;
  std::size_t code_marks_ = 0;  // backticks that opened the code, 0: none
  bool thinking_ = false;
  std::string style_;  // in force after word_
};

// A whole text without styles.
std::string plain_screen_text(std::string_view text);

}  // namespace leq::run
