// What Ctrl-C does: it stops the reply in work, and where there is none, or at the second time, it
// ends the program.
#pragma once

#include <atomic>
#include <string_view>

namespace leq::run {

inline constexpr int kInterruptedStatus = 130;  // exit status, 128 + SIGINT as shells have it

// From now on the rules above hold. `abort_report`: what a terminal needs when the program ends in
// the middle of a reply (colours off); must outlive the program.
void watch_interrupts(std::string_view abort_report);

// While it lives, the first Ctrl-C sets flag() instead of ending the program.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  const std::atomic<bool>& flag() const;
  bool interrupted() const { return flag().load(); }
};

}  // namespace leq::run
