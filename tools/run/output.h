// Where text goes: the reply alone to standard output, piece by piece as it comes; everything else
// to standard error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/progress.h"

namespace leq::run {

enum class Colors { off, on };

// on where `wanted` and standard output is a terminal: escape codes never go into a pipe.
Colors choose_colors(bool wanted);

// Ends every colour; for the end of the program.
inline constexpr std::string_view kColorsOff = "\033[0m";

class ReplyPrinter {
 public:
  explicit ReplyPrinter(Colors colors) : colors_(colors) {}

  // Throws Error where standard output cannot be written. Text between <think> and </think> is
  // dimmed.
  void reply(std::string_view text);
  // The prompt that a completion goes on from; it is shown once all of it is fed.
  void prompt(std::string_view text) { prompt_ = text; }
  // So many of the prompt's tokens are fed: a line on a terminal, until there is text.
  void feeding(std::int64_t done, std::int64_t total);
  // Ends the last line where it is not ended yet.
  void end_line();
  // Colours back to normal, and what follows begins on its own line where both are seen together.
  void finish();

 private:
  void begin();
  void write(std::string_view text);
  void write_code(std::string_view code);

  Colors colors_;
  std::string prompt_;
  std::optional<Progress> progress_;
  bool thinking_ = false;
  bool line_open_ = false;
};

// One line to standard error, "leq-run: ..." in front.
void note(const std::string& text);

}  // namespace leq::run
