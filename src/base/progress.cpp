#include "base/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "base/text.h"

namespace leq {
namespace {

// A terminal's line is redrawn; a log gets a line only at longer intervals (short work: none).
constexpr std::chrono::milliseconds kTerminalInterval(100);
constexpr std::chrono::milliseconds kLogInterval(60'000);

std::string human_seconds(double seconds) {
  const long long whole = std::llround(seconds);
  if (whole < 60) return std::to_string(whole) + " s";
  if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

// The progress as text: "747 of 5,952 steps", "1.20 GB of 3.50 GB".
std::string share_text(std::int64_t done, std::int64_t total, const std::string& unit) {
  if (unit == "bytes") {
    return human_bytes(static_cast<std::uint64_t>(done)) + " of " +
           human_bytes(static_cast<std::uint64_t>(total));
  }
  return with_commas(done) + " of " + with_commas(total) + " " + unit;
}

}  // namespace

std::string progress_text(const std::string& what, std::int64_t done, std::int64_t total,
                          const std::string& unit, double seconds, const std::string& note,
                          std::int64_t first) {
  std::string line = what + ": " + share_text(done, total, unit);
  constexpr double kTooEarly = 1;
  if (done > first && done < total && seconds >= kTooEarly) {
    const double left =
        seconds * static_cast<double>(total - done) / static_cast<double>(done - first);
    line += ", " + human_seconds(left) + " left";
  }
  return note.empty() ? line : line + ", " + note;
}

std::string expected_time(double seconds, double slowdown) {
  constexpr double kSame = 1.25;
  const std::string idle = human_seconds(std::max(1.0, seconds));
  if (slowdown < kSame) return "about " + idle;
  return idle + " to " + human_seconds(std::max(1.0, seconds) * slowdown) +
         ", as other programs use the cores";
}

double slowdown_by_others(int threads) {
  double load = 0;  // mean number of running threads
  const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (::getloadavg(&load, 1) != 1 || cores < 1) return 1;
  return std::max(1.0, (load + threads) / static_cast<double>(cores));
}

Progress::Progress(std::string what, std::int64_t total, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      total_(total),
      terminal_(::isatty(STDERR_FILENO) != 0),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

Progress::~Progress() {
  if (terminal_ && drawn_) std::cerr << '\n';
}

void Progress::update(std::int64_t done, const std::string& note) {
  const auto now = std::chrono::steady_clock::now();
  if (!first_) {
    first_ = done;
    start_ = now;
  }
  const auto interval = terminal_ ? kTerminalInterval : kLogInterval;
  if (now - last_ < interval && !(terminal_ && drawn_ && done == total_)) return;
  last_ = now;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const std::string line = printable(
      progress_text(what_, done, total_, unit_, elapsed, note, *first_), std::string::npos);
  if (terminal_) {
    std::cerr << '\r' << line << "\x1b[K" << std::flush;
  } else {
    std::cerr << line << '\n';
  }
  drawn_ = true;
}

void Progress::clear() {
  if (terminal_ && drawn_) std::cerr << "\r\x1b[K" << std::flush;
  drawn_ = false;
}

}  // namespace leq
