// Reads lines of input: with editing and history on a terminal, without from a pipe.
#pragma once

#include <memory>
#include <optional>
#include <string>

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
};

// Uses libedit if standard input and standard error are a terminal.
std::unique_ptr<LineReader> make_line_reader();

}  // namespace leq::run
