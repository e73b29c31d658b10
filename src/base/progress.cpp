#include "base/progress.h"

#include <unistd.h>

#include <cmath>
#include <iostream>

#include "base/text.h"

namespace leq {
namespace {

// A terminal line is drawn over; a log gets a new line now and then, and none from short work.
constexpr std::chrono::milliseconds kTerminalInterval(100);
constexpr std::chrono::milliseconds kLogInterval(10'000);

std::string human_seconds(double seconds) {
  const long long whole = std::llround(seconds);
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

}  // namespace

Progress::Progress(std::string what, std::int64_t total)
    : what_(std::move(what)),
      total_(total),
      terminal_(::isatty(STDERR_FILENO) != 0),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

Progress::~Progress() {
  if (terminal_ && drawn_) std::cerr << '\n';
}

void Progress::update(std::int64_t done, const std::string& note) {
  const auto now = std::chrono::steady_clock::now();
  const auto interval = terminal_ ? kTerminalInterval : kLogInterval;
  if (now - last_ < interval && !(terminal_ && drawn_ && done == total_)) return;
  last_ = now;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  std::string line = what_ + ": " + std::to_string(done) + "/" + std::to_string(total_);
  if (done > 0 && done < total_) {
    line +=
        ", " +
        human_seconds(elapsed * static_cast<double>(total_ - done) / static_cast<double>(done)) +
        " left";
  }
  if (!note.empty()) line += ", " + note;
  if (terminal_) {
    std::cerr << '\r' << line << "\x1b[K" << std::flush;
  } else {
    std::cerr << line << '\n';
  }
  drawn_ = true;
}

}  // namespace leq
