#include "tools/run/line_reader.h"

#include <unistd.h>

#include <iostream>

#include "tools/run/terminal_reader.h"

namespace leq::run {
namespace {

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

}  // namespace

std::unique_ptr<LineReader> make_line_reader(bool colored) {
  if (isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1) return make_terminal_reader(colored);
  return std::make_unique<PipeReader>();
}

}  // namespace leq::run
