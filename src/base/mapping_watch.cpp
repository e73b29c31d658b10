#include "base/mapping_watch.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>

#include "base/text.h"

namespace leq {
namespace {

// The signal handler reads only atomics; a slot is free if `begin` is 0.
struct Slot {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
  std::atomic<const char*> name{nullptr};
  std::atomic<bool> lost{false};
  std::unique_ptr<std::string> owned;
};

std::array<Slot, 1024> slots;
std::mutex changes;  // guards changes of slots; the handler never locks it
std::array<char, 64> program_name = {};
std::atomic<bool> reads_zeros = false;

// Uses only write(2) and arithmetic, which are safe in a signal handler.
void write_text(const char* text) {
  const ssize_t ignored = ::write(STDERR_FILENO, text, std::strlen(text));
  static_cast<void>(ignored);
}

void write_number(std::uintptr_t value) {
  std::array<char, 24> digits = {};
  std::size_t at = digits.size() - 1;
  do {
    digits[--at] = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  write_text(&digits[at]);
}

// Replaces the whole mapping by zeros, so that no thread has a second fault in it.
bool read_as_zeros(std::uintptr_t begin, std::uintptr_t end) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  return ::mmap(reinterpret_cast<void*>(begin), end - begin, PROT_READ, kFlags, -1, 0) !=
         MAP_FAILED;
}

void on_lost_page(int number, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (Slot& slot : slots) {
    const std::uintptr_t begin = slot.begin.load();
    if (begin == 0 || address < begin || address >= slot.end.load()) continue;
    const bool is_first = !slot.lost.exchange(true);
    const bool goes_on = reads_zeros && read_as_zeros(begin, slot.end.load());
    if (goes_on && !is_first) return;
    write_text(program_name.data());
    write_text(": error: ");
    write_text(slot.name.load());
    write_text(": cannot read at offset ");
    write_number(address - begin);
    write_text(": the file became shorter, or its disk failed, while it was in use");
    write_text(goes_on ? "\n" : "; start again with a whole file\n");
    if (goes_on) return;
    ::_exit(1);
  }
  std::signal(number, SIG_DFL);  // the access is repeated and ends the program
}

}  // namespace

void watch_mappings(std::string_view program, LostPages lost) {
  reads_zeros = lost == LostPages::read_zeros;
  const std::size_t size = std::min(program.size(), program_name.size() - 1);
  std::copy_n(program.begin(), size, program_name.begin());
  program_name[size] = '\0';
  struct sigaction action = {};
  action.sa_sigaction = on_lost_page;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

const std::atomic<bool>* name_mapping(const std::byte* data, std::size_t size,
                                      const std::string& file) {
  const std::lock_guard lock(changes);
  const auto free = std::ranges::find_if(slots, [](const Slot& slot) { return slot.begin == 0; });
  if (free == slots.end()) return nullptr;
  free->owned = std::make_unique<std::string>(printable(file, 1000));
  free->name = free->owned->c_str();
  free->lost = false;
  free->end = reinterpret_cast<std::uintptr_t>(data) + size;
  free->begin = reinterpret_cast<std::uintptr_t>(data);
  return &free->lost;
}

void unwatch_mapping(const std::byte* data) noexcept {
  const std::lock_guard lock(changes);
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const auto known =
      std::ranges::find_if(slots, [&](const Slot& slot) { return slot.begin == begin; });
  if (known != slots.end()) known->begin = 0;
}

}  // namespace leq
