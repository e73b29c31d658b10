// A progress line on stderr with an estimate of the remaining time. If stderr is not a terminal, a
// line is printed every minute, so that shorter work prints none.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace leq {

// For example "quantize: 747 of 5,952 steps, 2 min 10 s left, ppl 12.34". `first`: steps that an
// earlier run has completed. The remaining time is omitted in the first second, before the first
// step and after the last one, because it cannot be estimated then.
std::string progress_text(const std::string& what, std::int64_t done, std::int64_t total,
                          const std::string& unit, double seconds, const std::string& note,
                          std::int64_t first = 0);

// Work that takes `seconds` on an idle machine, for a line before it: "about 45 s", or if other
// programs slow it down "45 s to 1 min 30 s, as other programs use the cores".
std::string expected_time(double seconds, double slowdown);
// How many times as long this many threads take beside the other programs of the last minute.
double slowdown_by_others(int threads);

class Progress {
 public:
  // `unit`: the plural of what is counted, such as "windows"; "bytes" are printed as MB and GB.
  Progress(std::string what, std::int64_t total, std::string unit);
  ~Progress();  // ends the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Reports that `done` of `total` are finished; the first call starts the clock. `note` is printed
  // after the estimate ("ppl 12.34").
  void update(std::int64_t done, const std::string& note = "");
  // Clears the line on a terminal, for other output; the next update draws it again.
  void clear();

 private:
  std::string what_, unit_;
  std::int64_t total_;
  bool terminal_;
  bool drawn_ = false;
  std::optional<std::int64_t> first_;  // `done` at the time start_
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace leq
