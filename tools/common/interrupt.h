// Handles Ctrl-C: it stops the current reply. If there is no reply, or if it is pressed again, it
// ends the program.
#pragma once

#include <atomic>
#include <string_view>

namespace leq::run {

inline constexpr int kInterruptedStatus = 130;  // 128 + SIGINT, as in shells
// Returns the exit status for the last signal.
int interrupted_status();

// Installs the handler. `abort_report`: written to the terminal if the program ends during a reply
// (switches colours off); it must outlive the program.
void watch_interrupts(std::string_view abort_report);
// Also handles SIGTERM and SIGHUP, except that an ignored SIGHUP (nohup) stays ignored.
void watch_ends();

// During its lifetime, the first Ctrl-C sets flag() instead of ending the program.
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
