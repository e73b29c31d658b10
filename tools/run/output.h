// Output of leq-run: only the reply goes to standard output, as it is generated; everything else
// goes to standard error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/progress.h"
#include "tools/run/screen_text.h"

namespace leq::run {

enum class Colors { off, on };

// Returns colours if `wanted` and standard output is a terminal; pipes must not get escape codes.
Colors choose_colors(bool wanted);
// Whether the environment lets a chat use colours that no flag asks for (NO_COLOR, TERM).
bool allows_colors();

// Resets colours; also used when the program ends.
inline constexpr std::string_view kColorsOff = "\033[0m";

class ReplyPrinter {
 public:
  // On a terminal the replies of a chat are wrapped, and their Markdown becomes styles.
  ReplyPrinter(Colors colors, bool chat);

  // Throws Error if standard output cannot be written.
  void reply(std::string_view text);
  void set_wrap(bool on) { screen_.set_wrap(on); }
  // Sets the prompt of a completion, which is printed once all of it is fed.
  void prompt(std::string_view text) { prompt_ = text; }
  // Shows the progress of feeding the prompt as a line on a terminal, until the first text.
  void feeding(std::int64_t done, std::int64_t total);
  // Ends the current line if one is open.
  void end_line();
  // Resets colours, and starts a new line if later output appears on the same terminal.
  void finish();

 private:
  void begin();
  void write(std::string_view text);
  void write_code(std::string_view code);

  Colors colors_;
  bool chat_;
  bool on_terminal_;
  ScreenText screen_;
  std::string prompt_;
  std::optional<Progress> progress_;
  bool line_open_ = false;
};

// Prints one line to standard error, prefixed with "leq-run: ". note() prints nothing with --quiet;
// tell() always prints: answers to commands of a chat, for example.
void note(const std::string& text);
void tell(const std::string& text);

}  // namespace leq::run
