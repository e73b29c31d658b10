#include "comm/abort_report.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>

namespace leq {
namespace {

// State for the signal handler, written by the rank's only thread.
struct Place {
  std::atomic<const char*> operation{nullptr}, site{nullptr};
  std::atomic<std::size_t> operation_size{0}, site_size{0};
  std::atomic<std::int64_t> step{0};
};
Place g_place;
std::atomic<int> g_rank{0}, g_size{0};

// Formats a line without allocating memory, for a signal handler.
class Line {
 public:
  Line& operator<<(std::string_view text) {
    for (const char letter : text) {
      if (size_ < line_.size()) line_[size_++] = letter;
    }
    return *this;
  }
  Line& operator<<(std::int64_t number) {
    std::array<char, 20> digits;
    std::size_t first = digits.size();
    do {
      digits[--first] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
    return *this << std::string_view(digits.data() + first, digits.size() - first);
  }
  void write_out() const {
    [[maybe_unused]] const auto done = ::write(STDERR_FILENO, line_.data(), size_);
  }

 private:
  std::array<char, 400> line_ = {};
  std::size_t size_ = 0;
};

void on_term(int signal) {
  Line line;
  line << "rank " << std::int64_t{g_rank} << " of " << std::int64_t{g_size} << ": ";
  if (const std::int64_t step = g_place.step; step > 0) line << "step " << step << ": ";
  const char* const operation = g_place.operation;
  if (operation != nullptr) {
    line << "waiting in " << std::string_view(operation, g_place.operation_size) << " '"
         << std::string_view(g_place.site, g_place.site_size) << "'";
  } else {
    line << "at work";
  }
  line << " when told to end (SIGTERM): mpirun does so where another process has died\n";
  line.write_out();
  // Waits until mpirun has read the line, because the last output of an ended process may be lost.
  const timespec pause = {0, 200'000'000};
  ::nanosleep(&pause, nullptr);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

void report_place_on_signal(int rank, int size) {
  g_rank = rank;
  g_size = size;
  struct sigaction now = {};
  if (::sigaction(SIGTERM, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  struct sigaction action = {};
  action.sa_handler = on_term;
  ::sigaction(SIGTERM, &action, nullptr);
}

ReportedPlace::ReportedPlace(std::string_view operation, std::string_view site, std::int64_t step) {
  g_place.step = step;
  g_place.site = site.data();
  g_place.site_size = site.size();
  g_place.operation_size = operation.size();
  g_place.operation = operation.data();
}

ReportedPlace::~ReportedPlace() { g_place.operation = nullptr; }

}  // namespace leq
