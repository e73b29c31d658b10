#include "base/progress.h"

#include <unistd.h>

#include <iostream>

#include "base/text.h"

namespace leq {
namespace {

std::string human_seconds(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
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
  const std::int64_t tenth = total_ > 0 ? done * 10 / total_ : 10;
  const bool due = terminal_ ? now - last_ > std::chrono::milliseconds(100) || done == total_
                             : tenth > last_tenth_;
  if (!due) return;
  last_ = now;
  last_tenth_ = tenth;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  std::string line = what_ + ": " + std::to_string(done) + "/" + std::to_string(total_);
  if (done > 0 && done < total_) {
    line += ", " + human_seconds(elapsed * static_cast<double>(total_ - done) /
                                 static_cast<double>(done)) + " left";
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
