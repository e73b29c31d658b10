// Reads lines of input: with editing and history on a terminal, without from a pipe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace leq::run {

enum class LineEnd { line, end_of_input, interrupted };

struct Line {
  std::string text;  // without its newline; if interrupted, the text typed so far
  LineEnd end = LineEnd::line;
};

class LineReader {
 public:
  virtual ~LineReader() = default;
  // `prompt` is shown only on a terminal.
  virtual Line read(const std::string& prompt) = 0;
  virtual bool is_terminal() const = 0;
  // Whether lines are added to the history.
  virtual void keep_history(bool) {}
};

// Uses libedit if standard input and standard error are a terminal. `colored` sets prompts and
// typed text apart.
std::unique_ptr<LineReader> make_line_reader(bool colored);

inline constexpr std::string_view kTypedStyle = "\033[1;32m";

}  // namespace leq::run
