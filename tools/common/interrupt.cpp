#include "tools/common/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace leq::run {
namespace {

// These are lock-free atomics, because a signal handler accesses them.
std::atomic<bool> g_caught = false;
std::atomic<int> g_signal = SIGINT;
std::atomic<bool> g_watching = false;
std::atomic<const char*> g_report = "";
std::atomic<std::size_t> g_report_size = 0;
static_assert(std::atomic<bool>::is_always_lock_free);

void on_interrupt(int signal) {
  g_signal = signal;
  if (g_watching.load() && !g_caught.exchange(true)) return;
  // Errors are ignored, because the program ends anyway.
  if (write(STDOUT_FILENO, g_report.load(), g_report_size.load()) < 0) _exit(1);
  if (write(STDERR_FILENO, "\n", 1) < 0) _exit(1);
  _exit(interrupted_status());
}

void watch(int signal) {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;  // writes restart; poll() returns anyway
  sigaction(signal, &action, nullptr);
}

}  // namespace

void watch_interrupts(std::string_view abort_report) {
  g_report = abort_report.data();
  g_report_size = abort_report.size();
  watch(SIGINT);
}

void watch_ends() {
  watch(SIGTERM);
  struct sigaction now = {};
  if (sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) watch(SIGHUP);
}

int interrupted_status() { return 128 + g_signal.load(); }

InterruptScope::InterruptScope() {
  g_caught = false;
  g_watching = true;
}

InterruptScope::~InterruptScope() { g_watching = false; }

const std::atomic<bool>& InterruptScope::flag() const { return g_caught; }

}  // namespace leq::run
