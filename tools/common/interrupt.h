// Handling of Ctrl-C: it stops the current reply; without one, or the second time, it ends the
// program.
#pragma once

#include <atomic>
#include <string_view>

namespace leq::run {

inline constexpr int kInterruptedStatus = 130;  // exit status, 128 + SIGINT as shells have it
// The exit status for the last signal.
int interrupted_status();

// Installs the handler. `abort_report`: written to the terminal when the program ends during a
// reply (switches colours off); must outlive the program.
void watch_interrupts(std::string_view abort_report);
// The same for SIGTERM and SIGHUP, unless SIGHUP is ignored (nohup).
void watch_ends();

// In its lifetime the first Ctrl-C sets flag() instead of ending the program.
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
