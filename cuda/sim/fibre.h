// A fibre has its own stack and is switched to by 15 instructions (x86-64). Switches are reported
// to the sanitizers. Internal to the emulator (emulator.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

// Hides accesses to the emulator's own state, which are not the kernel's, from ThreadSanitizer.
#if defined(__SANITIZE_THREAD__)
#define SIMT_UNSEEN __attribute__((no_sanitize("thread"), noinline))
#else
#define SIMT_UNSEEN
#endif

namespace simt {

// Not a multiple of 4 KB: the frames of a warp's lanes would share a few sets of the L1 cache.
inline constexpr std::size_t kStackBytes = (64 << 10) + 4096 + 320;
inline constexpr unsigned kMaxThreads = 1024;

struct Fibre {
  void* saved = nullptr;  // its stack pointer while it does not run
  std::byte* stack = nullptr;
  void* watched = nullptr;  // ThreadSanitizer's handle
};

// The OS thread that switches between fibres.
struct Main {
  void* saved = nullptr;
  void* watched = nullptr;
  const void* stack = nullptr;  // for AddressSanitizer
  std::size_t stack_bytes = 0;
};

// The stacks of one block, mapped at once. Pages take memory only when they are used.
class Stacks {
 public:
  explicit Stacks(std::uint64_t canary);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  // Writes the canary at the far end of the stack, where an overflow would overwrite it.
  std::byte* at(unsigned i);
  const std::uint64_t* canary(unsigned i) const;

 private:
  std::byte* memory_ = nullptr;
  std::uint64_t canary_;
};

void begin(Main& main);  // called on the OS thread before any fibre runs
void start(Fibre& fibre, std::byte* stack, void (*entry)());
void to_fibre(Fibre& fibre, Main& main);  // returns when the fibre switches back or ends
void to_main(Fibre& fibre, Main& main);
void entered(Main& main);  // called first on a new fibre
[[noreturn]] void leave(Fibre& fibre, Main& main);
void finish(Fibre& fibre);

// For ThreadSanitizer: accesses before release are visible after acquire. Each generation of a
// barrier has a key of its own. With a single key, the arrival of a fast warp at the next barrier
// would be ordered before a slow warp leaves this one, which would hide a race.
void release_key(const void* key);
void acquire_key(const void* key);

}  // namespace simt
