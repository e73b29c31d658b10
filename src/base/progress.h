// A progress line on stderr with an estimate of the time left. Where stderr is no terminal: a line
// every ten seconds, none from work that is shorter.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace leq {

// "quantize: 747 of 5,952 steps, 2 min 10 s left, ppl 12.34". `first`: steps that an earlier run
// has done. The time left is missing in the first second, before the first step and after the
// last one, since there is nothing to measure.
std::string progress_text(const std::string& what, std::int64_t done, std::int64_t total,
                          const std::string& unit, double seconds, const std::string& note,
                          std::int64_t first = 0);

class Progress {
 public:
  // `unit`: what is counted, in the plural: "windows"; "bytes" are written as MB and GB.
  Progress(std::string what, std::int64_t total, std::string unit);
  ~Progress();  // ends the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of total; the time begins with the first call. `note` stands after the estimate
  // ("ppl 12.34").
  void update(std::int64_t done, const std::string& note = "");
  // Makes room on a terminal for other text; the next update draws the line again.
  void clear();

 private:
  std::string what_, unit_;
  std::int64_t total_;
  bool terminal_;
  bool drawn_ = false;
  std::optional<std::int64_t> first_;  // done at start_
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace leq
