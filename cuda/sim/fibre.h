// A fibre: its own stack and a switch of 15 instructions (x86-64), reported to the sanitizers.
// Internal to the emulator (emulator.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

// Hides the emulator's own state, which is not the kernel's, from ThreadSanitizer.
#if defined(__SANITIZE_THREAD__)
#define SIMT_UNSEEN __attribute__((no_sanitize("thread"), noinline))
#else
#define SIMT_UNSEEN
#endif

namespace simt {

inline constexpr std::size_t kStackBytes = 64 << 10;
inline constexpr unsigned kMostThreads = 1024;

struct Fibre {
  void* saved = nullptr;  // stack pointer while it does not run
  std::byte* stack = nullptr;
  void* watched = nullptr;  // ThreadSanitizer's
};

// The OS thread that switches between fibres.
struct Main {
  void* saved = nullptr;
  void* watched = nullptr;
  const void* stack = nullptr;  // AddressSanitizer's
  std::size_t stack_bytes = 0;
};

// The stacks of one block, mapped at once; pages are touched on use.
class Stacks {
 public:
  explicit Stacks(std::uint64_t canary);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  // Writes the canary at the stack's far end.
  std::byte* at(unsigned i);
  const std::uint64_t* canary(unsigned i) const;

 private:
  std::byte* memory_ = nullptr;
  std::uint64_t canary_;
};

void begin(Main& main);  // on the OS thread, before any fibre
void start(Fibre& fibre, std::byte* stack, void (*entry)());
void to_fibre(Fibre& fibre, Main& main);  // returns when the fibre switches back or leaves
void to_main(Fibre& fibre, Main& main);
void entered(Main& main);  // first thing on a new fibre
[[noreturn]] void leave(Fibre& fibre, Main& main);
void finish(Fibre& fibre);

// For ThreadSanitizer: what happened before release is visible after acquire. Each generation of a
// barrier has its own key: with one key for all, the arrival of a fast warp at the next barrier
// would be ordered before a slow warp that leaves this one, and hide a race.
void release_key(const void* key);
void acquire_key(const void* key);

}  // namespace simt
