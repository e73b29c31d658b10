#include "tools/run/line_reader.h"

#include <histedit.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <iostream>
#include <memory>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "tools/common/interrupt.h"
#include "tools/run/history_file.h"
#include "tools/run/prompt.h"
#include "tools/run/screen_text.h"

namespace leq::run {
namespace {

// The poll interval, because poll() misses a signal that arrives after its flag was checked.
constexpr int kLookAgainMs = 100;
// A terminal at end of input (Ctrl-D on an empty line in some modes) polls ready without data.
constexpr int kLooksAtTheEnd = 3;

// These keys are read as bytes, because only one of several signals in a burst would arrive.
constexpr char kCtrlC = '\003', kCtrlZ = '\032', kCtrlBackslash = '\034';

// Encloses the codes in a prompt that take no columns.
constexpr char kCodeMark = '\001';

constexpr std::string_view kPasteEnds = "\033[201~";
// Switch the terminal's bracketed paste mode.
constexpr std::string_view kPastesMarked = "\033[?2004h", kPastesPlain = "\033[?2004l";

// Lock-free atomics, because a signal handler accesses them.
std::atomic<bool> g_resized = false, g_continued = false, g_marks_pastes = false;

// The terminal's modes before a line is read.
termios g_modes_before;

// Restores the terminal and ends as without this handler, which SA_RESETHAND has removed.
void end_by(int signal) {
  tcsetattr(STDIN_FILENO, TCSANOW, &g_modes_before);
  const std::size_t size = g_marks_pastes ? kPastesPlain.size() : 0;
  if (write(STDERR_FILENO, kPastesPlain.data(), size) < 0) _exit(128 + signal);
  std::raise(signal);
}

// While a line is read, records SIGWINCH and SIGCONT, and restores the terminal before a signal
// ends the program.
class SignalScope {
 public:
  SignalScope() {
    if (tcgetattr(STDIN_FILENO, &g_modes_before) == 0) {
      for (auto& [signal, before] : ends_) watch_end(signal, before);
    }
    struct sigaction action = {};
    action.sa_handler = [](int number) { (number == SIGWINCH ? g_resized : g_continued) = true; };
    g_resized = g_continued = false;
    sigaction(SIGWINCH, &action, &resized_before_);
    sigaction(SIGCONT, &action, &continued_before_);
  }
  ~SignalScope() {
    sigaction(SIGWINCH, &resized_before_, nullptr);
    sigaction(SIGCONT, &continued_before_, nullptr);
    for (auto& [signal, before] : ends_) {
      if (before.sa_handler == SIG_DFL) sigaction(signal, &before, nullptr);
    }
  }
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

 private:
  static void watch_end(int signal, struct sigaction& before) {
    if (sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
    struct sigaction action = {};
    action.sa_handler = end_by;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(signal, &action, nullptr);
  }

  struct sigaction resized_before_ = {}, continued_before_ = {};
  std::pair<int, struct sigaction> ends_[2] = {{SIGTERM, {}}, {SIGHUP, {}}};
};

// Returns the row of the text's end relative to its first row, on a terminal of `columns` columns.
std::size_t rows_below(const std::string& text, std::size_t columns) {
  std::size_t row = 0, column = 0;
  std::mbstate_t state = {};
  for (std::size_t at = 0; at < text.size();) {
    wchar_t letter = 0;
    const std::size_t used = std::mbrtowc(&letter, text.data() + at, text.size() - at, &state);
    if (used == 0 || used > text.size()) break;
    at += used;
    if (letter == L'\n') {
      ++row;
      column = 0;
      continue;
    }
    const auto width = static_cast<std::size_t>(std::max(wcwidth(letter), 0));
    if (column + width > columns) {
      ++row;
      column = 0;
    }
    column += width;
  }
  return row + (column >= columns ? 1 : 0);
}

// Normalizes line ends and drops unprintable characters.
std::string pasted_text(std::string text) {
  text = replace_all(replace_all(std::move(text), "\r\n", "\n"), "\r", "\n");
  std::erase_if(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
  });
  while (const auto bad = first_invalid_utf8(text)) text.erase(*bad, 1);
  return text;
}

class TerminalReader : public LineReader {
 public:
  explicit TerminalReader(bool colored) {
    use_utf8_characters();  // libedit takes the character set from the locale
    const char* terminal = std::getenv("TERM");
    knows_codes_ = terminal != nullptr && std::string_view(terminal) != "dumb";
    colored_ = colored && knows_codes_;
    edit_.reset(el_init("leq-run", stdin, stderr, stderr));
    history_.reset(history_init());
    require(edit_ != nullptr && history_ != nullptr, "libedit: cannot set up line editing");
    HistEvent event;
    history(history_.get(), &event, H_SETSIZE, static_cast<int>(kHistoryLines));
    for (const std::string& line : read_history(history_path())) {
      history(history_.get(), &event, H_ENTER, line.c_str());
    }
    el_set(edit_.get(), EL_CLIENTDATA, this);
    el_set(edit_.get(), EL_EDITOR, "emacs");
    el_set(edit_.get(), EL_HIST, history, history_.get());
    el_set(edit_.get(), EL_PROMPT_ESC, &TerminalReader::prompt, kCodeMark);
    el_set(edit_.get(), EL_GETCFN, &TerminalReader::next_character);
    el_set(edit_.get(), EL_SETTY, "-d", "-isig", nullptr);
    // The wide function is used because el_set would copy the texts and never free them.
    el_wset(edit_.get(), EL_ADDFN, L"leq-paste", L"insert what is pasted", &TerminalReader::paste);
    el_set(edit_.get(), EL_BIND, "\\e[200~", "leq-paste", nullptr);
  }

  Line read(const std::string& prompt) override {
    prompt_ = prompt;
    shown_prompt_ = prompt;
    if (colored_) {
      shown_prompt_ = kCodeMark + std::string(kTypedStyle) + kCodeMark + prompt;
    }
    el_resize(edit_.get());
    const InterruptScope scope;
    const SignalScope signals;
    interrupts_ = &scope;
    interrupted_ = false;
    take_terminal();
    int count = 0;
    const char* text = el_gets(edit_.get(), &count);
    interrupts_ = nullptr;
    mark_pastes(false);
    if (colored_) std::fputs("\033[0m", stderr);
    if (interrupted_ || scope.interrupted()) {
      std::fputs("^C\n", stderr);
      const LineInfo* typed = el_line(edit_.get());
      return {std::string(typed->buffer, typed->lastchar), LineEnd::interrupted};
    }
    if (is_too_long_) check_prompt_size(kMaxPromptBytes + 1);
    if (text == nullptr || count <= 0) {
      std::fputs("\n", stderr);
      return {"", LineEnd::end_of_input};
    }
    Line line = {std::string(text, static_cast<std::size_t>(count)), LineEnd::line};
    while (line.text.ends_with('\n') || line.text.ends_with('\r')) line.text.pop_back();
    remember(line.text);
    return line;
  }
  bool is_terminal() const override { return true; }
  void keep_history(bool on) override { keeps_history_ = on; }

 private:
  static TerminalReader& self(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return *static_cast<TerminalReader*>(data);
  }
  static char* prompt(EditLine* edit) { return self(edit).shown_prompt_.data(); }

  // Switches the terminal's bracketed paste mode.
  void mark_pastes(bool on) const {
    if (!knows_codes_) return;
    g_marks_pastes = on;
    std::fputs((on ? kPastesMarked : kPastesPlain).data(), stderr);
    std::fflush(stderr);
  }

  // Called before the prompt, because el_gets sets the mode only after it, and keys typed in
  // between would go to the terminal's own line, which Ctrl-C discards. Sets cooked mode first,
  // because libedit skips a mode that it believes to be set.
  void take_terminal() {
    el_set(edit_.get(), EL_PREP_TERM, 0);
    el_set(edit_.get(), EL_PREP_TERM, 1);
    mark_pastes(true);
  }

  // Redraws prompt and line at the cursor.
  void redraw() { el_set(edit_.get(), EL_REFRESH); }

  // Terminals rewrap lines when resized, so the prompt's row is computed for the new width.
  void follow_size() {
    if (knows_codes_) {
      const LineInfo* typed = el_line(edit_.get());
      const std::string before = prompt_ + std::string(typed->buffer, typed->cursor);
      const std::size_t rows = rows_below(before, terminal_columns());
      if (rows > 0) std::fprintf(stderr, "\033[%zuA", rows);
      std::fputs("\r\033[J", stderr);
    }
    el_resize(edit_.get());
    redraw();
  }

  // Handles Ctrl-Z with the terminal's usual behaviour.
  void suspend() {
    mark_pastes(false);
    el_set(edit_.get(), EL_PREP_TERM, 0);
    std::fputs("^Z\n", stderr);
    kill(0, SIGTSTP);
    restore_terminal();
  }

  // Restores the terminal after the shell has used it, which leaves the cursor on a new line.
  void restore_terminal() {
    g_continued = false;
    take_terminal();
    redraw();
  }

  // Reads a byte: returns 1; 0 at the end of input, -1 after Ctrl-C or an error.
  int next_byte(char& byte) {
    int empty_looks = 0;
    while (true) {
      pollfd waiting = {STDIN_FILENO, POLLIN, 0};
      const int ready = poll(&waiting, 1, kLookAgainMs);
      if (interrupts_->interrupted()) return -1;
      if (g_continued) restore_terminal();
      if (g_resized.exchange(false)) follow_size();
      if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
      int typed = 0;
      const bool at_end = (waiting.revents & POLLHUP) != 0;
      if (!at_end && ioctl(STDIN_FILENO, FIONREAD, &typed) == 0 && typed == 0 &&
          ++empty_looks < kLooksAtTheEnd) {
        continue;
      }
      return static_cast<int>(::read(STDIN_FILENO, &byte, 1));
    }
  }

  // Replaces libedit's read function, which would keep waiting after Ctrl-C.
  static int next_character(EditLine* edit, wchar_t* character) {
    TerminalReader& reader = self(edit);
    std::mbstate_t state = {};
    while (true) {
      char byte = 0;
      const int got = reader.next_byte(byte);
      if (got <= 0) return got;
      if (byte == kCtrlC) {
        reader.interrupted_ = true;
        return -1;
      }
      if (byte == kCtrlZ) {
        reader.suspend();
        continue;
      }
      if (byte == kCtrlBackslash) {
        el_set(edit, EL_PREP_TERM, 0);
        std::raise(SIGQUIT);
      }
      const std::size_t used = std::mbrtowc(character, &byte, 1, &state);
      if (used == static_cast<std::size_t>(-2)) continue;  // incomplete character
      if (used != static_cast<std::size_t>(-1)) return 1;
      state = {};  // invalid byte: skipped
    }
  }

  static unsigned char paste(EditLine* edit, wint_t) {
    TerminalReader& reader = self(edit);
    std::string text;
    while (!text.ends_with(kPasteEnds)) {
      // What follows is read and dropped, because the shell would take it for commands.
      if (text.size() > kMaxPromptBytes) {
        reader.is_too_long_ = true;
        text.erase(0, text.size() - kPasteEnds.size());
      }
      char byte = 0;
      const int got = reader.next_byte(byte);
      reader.interrupted_ = got > 0 && byte == kCtrlC;
      if (got <= 0 || reader.interrupted_) return CC_EOF;
      text += byte;
    }
    if (reader.is_too_long_) return CC_EOF;
    text.resize(text.size() - kPasteEnds.size());
    el_insertstr(edit, pasted_text(std::move(text)).c_str());
    return CC_REFRESH;
  }

  void remember(const std::string& text) {
    if (text.empty() || !keeps_history_) return;
    append_history(history_path(), text);
    HistEvent event;
    history(history_.get(), &event, H_ENTER, text.c_str());
  }

  struct Close {
    void operator()(EditLine* edit) const { el_end(edit); }
    void operator()(History* history) const { history_end(history); }
  };
  std::unique_ptr<History, Close> history_;
  std::unique_ptr<EditLine, Close> edit_;
  std::string prompt_, shown_prompt_;
  bool keeps_history_ = true;
  bool colored_ = false;
  bool knows_codes_ = false;
  bool interrupted_ = false;
  bool is_too_long_ = false;
  const InterruptScope* interrupts_ = nullptr;
};

// Uses libedit, which draws on standard error, because standard output is only for replies. Pasted
// text is inserted as one text with its newlines and sent with the next Enter.
std::unique_ptr<LineReader> make_terminal_reader(bool colored) {
  return std::make_unique<TerminalReader>(colored);
}

class PipeReader : public LineReader {
 public:
  Line read(const std::string&) override {
    using Traits = std::streambuf::traits_type;
    Line line;
    int next = 0;
    while ((next = std::cin.rdbuf()->sbumpc()) != Traits::eof() && next != '\n') {
      line.text += Traits::to_char_type(next);
      check_prompt_size(line.text.size());
    }
    if (next == Traits::eof() && line.text.empty()) return {"", LineEnd::end_of_input};
    if (line.text.ends_with('\r')) line.text.pop_back();
    return line;
  }
  bool is_terminal() const override { return false; }
};

}  // namespace

std::unique_ptr<LineReader> make_line_reader(bool colored) {
  if (isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1) return make_terminal_reader(colored);
  return std::make_unique<PipeReader>();
}

}  // namespace leq::run
