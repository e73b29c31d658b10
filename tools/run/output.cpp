#include "tools/run/output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace leq::run {
namespace {

constexpr std::string_view kGreen = "\033[32m";

// Returns whether standard output and standard error are the same stream (2>&1).
bool is_one_stream() {
  struct stat out = {}, err = {};
  return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
         out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

}  // namespace

Colors choose_colors(bool wanted) {
  return wanted && isatty(STDOUT_FILENO) == 1 ? Colors::on : Colors::off;
}

bool allows_colors() {
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string_view(text == nullptr ? "" : text);
  };
  return value("NO_COLOR").empty() && !value("TERM").empty() && value("TERM") != "dumb";
}

ReplyPrinter::ReplyPrinter(Colors colors, bool chat)
    : colors_(colors),
      chat_(chat),
      on_terminal_(isatty(STDOUT_FILENO) == 1),
      screen_({.styles = colors == Colors::on, .markdown = chat, .wrap = chat}) {
  if (on_terminal_) use_utf8_characters();
}

void ReplyPrinter::write(std::string_view text) {
  if (text.empty()) return;
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  require(written, "stdout: cannot write: ", std::strerror(errno));
  while (text.ends_with(kColorsOff)) text.remove_suffix(kColorsOff.size());
  if (!text.empty()) line_open_ = text.back() != '\n';
}

void ReplyPrinter::write_code(std::string_view code) {
  if (colors_ == Colors::off) return;
  const bool line_open = line_open_;
  write(code);
  line_open_ = line_open;
}

void ReplyPrinter::feeding(std::int64_t done, std::int64_t total) {
  if (!progress_) progress_.emplace("prompt", total, "tokens");
  progress_->update(done);
}

// Removes the progress line and prints the prompt before the first text.
void ReplyPrinter::begin() {
  if (progress_) progress_->clear();
  progress_.reset();
  if (prompt_.empty()) return;
  write_code(kGreen);
  const std::string prompt = std::exchange(prompt_, {});
  write(on_terminal_ ? plain_screen_text(prompt) : prompt);
  write_code(kColorsOff);
}

void ReplyPrinter::reply(std::string_view text) {
  begin();
  if (!on_terminal_) return write(text);
  screen_.set_columns(terminal_columns());
  write(screen_.feed(text));
}

void ReplyPrinter::end_line() {
  if (line_open_) write("\n");
}

void ReplyPrinter::finish() {
  begin();
  if (on_terminal_) {
    write(screen_.finish());
    end_line();
  } else if (chat_) {
    end_line();
  } else if (line_open_ && (is_one_stream() || isatty(STDERR_FILENO) == 1)) {
    std::fputc('\n', stderr);  // not to stdout, so that the reply's text is unchanged
  }
}

void note(const std::string& text) {
  std::cerr << "leq-run: " + printable(text, std::string::npos) + '\n';
}

void tell(const std::string& text) {
  std::fprintf(stderr, "leq-run: %s\n", printable(text, std::string::npos).c_str());
}

}  // namespace leq::run
