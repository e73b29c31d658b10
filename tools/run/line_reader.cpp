#include "tools/run/line_reader.h"

#include <histedit.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cwchar>
#include <iostream>

#include "base/error.h"
#include "tools/common/interrupt.h"

namespace leq::run {
namespace {

// A signal between a look at its flag and poll() would be noticed only with the next key.
constexpr int kLookAgainMs = 100;
// A terminal at its end (Ctrl-D on an empty line in some modes) is ready without characters.
constexpr int kLooksAtTheEnd = 3;

class PipeReader : public LineReader {
 public:
  Line read(const std::string&) override {
    Line line;
    if (!std::getline(std::cin, line.text)) return {"", LineEnd::end_of_input};
    if (line.text.ends_with('\r')) line.text.pop_back();
    return line;
  }
  bool is_terminal() const override { return false; }
};

// Calls libedit, which draws on standard error: standard output carries replies alone.
class TerminalReader : public LineReader {
 public:
  TerminalReader() {
    // libedit asks the locale for the character set; numbers keep the C locale's form.
    if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) {
      std::setlocale(LC_CTYPE, "C.UTF-8");
    }
    edit_.reset(el_init("leq-run", stdin, stderr, stderr));
    history_.reset(history_init());
    require(edit_ != nullptr && history_ != nullptr, "libedit: cannot set up line editing");
    HistEvent event;
    constexpr int kHistoryLines = 1000;
    history(history_.get(), &event, H_SETSIZE, kHistoryLines);
    el_set(edit_.get(), EL_CLIENTDATA, this);
    el_set(edit_.get(), EL_EDITOR, "emacs");
    el_set(edit_.get(), EL_HIST, history, history_.get());
    el_set(edit_.get(), EL_PROMPT, &TerminalReader::prompt);
    el_set(edit_.get(), EL_GETCFN, &TerminalReader::next_character);
  }

  Line read(const std::string& prompt) override {
    prompt_ = prompt;
    el_resize(edit_.get());
    const InterruptScope scope;
    interrupts_ = &scope;
    // Before the prompt shows: el_gets sets the terminal only after it, and keys typed in between
    // would be the terminal's own line, which Ctrl-C throws away.
    el_set(edit_.get(), EL_PREP_TERM, 1);
    int count = 0;
    const char* text = el_gets(edit_.get(), &count);
    interrupts_ = nullptr;
    if (scope.interrupted()) {
      std::fputs("^C\n", stderr);
      const LineInfo* typed = el_line(edit_.get());
      return {std::string(typed->buffer, typed->lastchar), LineEnd::interrupted};
    }
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

 private:
  static TerminalReader& self(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return *static_cast<TerminalReader*>(data);
  }
  static char* prompt(EditLine* edit) { return self(edit).prompt_.data(); }

  // One character of the terminal, 0 at its end, -1 after Ctrl-C: libedit's own reader would go on
  // waiting then.
  static int next_character(EditLine* edit, wchar_t* character) {
    std::mbstate_t state = {};
    int empty_looks = 0;
    while (true) {
      pollfd waiting = {STDIN_FILENO, POLLIN, 0};
      const int ready = poll(&waiting, 1, kLookAgainMs);
      if (self(edit).interrupts_->interrupted()) return -1;
      if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
      // Ctrl-C throws typed characters away: what poll saw may be gone, and a read would wait.
      int typed = 0;
      const bool at_end = (waiting.revents & POLLHUP) != 0;
      if (!at_end && ioctl(STDIN_FILENO, FIONREAD, &typed) == 0 && typed == 0 &&
          ++empty_looks < kLooksAtTheEnd) {
        continue;
      }
      empty_looks = 0;
      char byte = 0;
      const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
      if (got <= 0) return static_cast<int>(got);
      const std::size_t used = std::mbrtowc(character, &byte, 1, &state);
      if (used == static_cast<std::size_t>(-2)) continue;  // inside a character
      if (used != static_cast<std::size_t>(-1)) return 1;
      state = {};  // a stray byte: leave it out
    }
  }

  void remember(const std::string& text) {
    if (text.empty()) return;
    HistEvent event;
    history(history_.get(), &event, H_ENTER, text.c_str());
  }

  struct Close {
    void operator()(EditLine* edit) const { el_end(edit); }
    void operator()(History* history) const { history_end(history); }
  };
  std::unique_ptr<History, Close> history_;
  std::unique_ptr<EditLine, Close> edit_;
  std::string prompt_;
  const InterruptScope* interrupts_ = nullptr;
};

}  // namespace

std::unique_ptr<LineReader> make_line_reader() {
  if (isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1) {
    return std::make_unique<TerminalReader>();
  }
  return std::make_unique<PipeReader>();
}

}  // namespace leq::run
