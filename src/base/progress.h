// A progress line on stderr with an estimate of the time left. Where stderr is no terminal: a line
// every ten seconds, none from work that is shorter.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace leq {

class Progress {
 public:
  Progress(std::string what, std::int64_t total);
  ~Progress();  // ends the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of total; `note` stands after the estimate ("ppl 12.34").
  void update(std::int64_t done, const std::string& note = "");

 private:
  std::string what_;
  std::int64_t total_;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace leq
