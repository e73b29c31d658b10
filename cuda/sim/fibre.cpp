#include "cuda/sim/fibre.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Saves the callee-saved registers, switches stacks, and returns on the other stack.
extern "C" void simt_switch(void** save, void* load);
asm(R"(
.text
.globl simt_switch
.type simt_switch,@function
simt_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp,(%rdi)
  mov %rsi,%rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size simt_switch,.-simt_switch
)");

namespace simt {
namespace {

#if defined(__SANITIZE_ADDRESS__)
void asan_leave(void** fake, const void* stack, std::size_t bytes) {
  __sanitizer_start_switch_fiber(fake, stack, bytes);
}
void asan_arrive(void* fake, const void** stack, std::size_t* bytes) {
  __sanitizer_finish_switch_fiber(fake, stack, bytes);
}
void asan_clear(const void* stack, std::size_t bytes) {
  __asan_unpoison_memory_region(stack, bytes);
}
#else
void asan_leave(void**, const void*, std::size_t) {}
void asan_arrive(void*, const void**, std::size_t*) {}
void asan_clear(const void*, std::size_t) {}
#endif

#if defined(__SANITIZE_THREAD__)
// Flag 1 tells ThreadSanitizer that the switch itself does not synchronize.
SIMT_UNSEEN void tsan_switch(void* to) { __tsan_switch_to_fiber(to, 1); }
#else
void tsan_switch(void*) {}
#endif

}  // namespace

Stacks::Stacks(std::uint64_t canary) : canary_(canary) {
  void* memory = mmap(nullptr, kStackBytes * kMaxThreads, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::fputs("simt: no memory for the stacks of a block\n", stderr);
    std::abort();
  }
  memory_ = static_cast<std::byte*>(memory);
}

Stacks::~Stacks() { munmap(memory_, kStackBytes * kMaxThreads); }

std::byte* Stacks::at(unsigned i) {
  std::byte* stack = memory_ + i * kStackBytes;
  *reinterpret_cast<std::uint64_t*>(stack) = canary_;
  return stack;
}

const std::uint64_t* Stacks::canary(unsigned i) const {
  return reinterpret_cast<const std::uint64_t*>(memory_ + i * kStackBytes);
}

void begin(Main& main) {
#if defined(__SANITIZE_THREAD__)
  main.watched = __tsan_get_current_fiber();
#else
  main.watched = nullptr;
#endif
}

void start(Fibre& fibre, std::byte* stack, void (*entry)()) {
  asan_clear(stack, kStackBytes);
  fibre.stack = stack;
  // After the return into `entry`, the stack pointer must be a multiple of 16 plus 8, as after a
  // call.
  void** top = reinterpret_cast<void**>(stack + kStackBytes - 64) - 1;
  *top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  fibre.saved = top;
#if defined(__SANITIZE_THREAD__)
  fibre.watched = __tsan_create_fiber(0);
#endif
}

SIMT_UNSEEN void to_fibre(Fibre& fibre, Main& main) {
  void* fake = nullptr;
  tsan_switch(fibre.watched);
  asan_leave(&fake, fibre.stack, kStackBytes);
  simt_switch(&main.saved, fibre.saved);
  asan_arrive(fake, nullptr, nullptr);
}

SIMT_UNSEEN void to_main(Fibre& fibre, Main& main) {
  void* fake = nullptr;
  tsan_switch(main.watched);
  asan_leave(&fake, main.stack, main.stack_bytes);
  simt_switch(&fibre.saved, main.saved);
  asan_arrive(fake, &main.stack, &main.stack_bytes);
}

SIMT_UNSEEN void entered(Main& main) { asan_arrive(nullptr, &main.stack, &main.stack_bytes); }

SIMT_UNSEEN void leave(Fibre& fibre, Main& main) {
  tsan_switch(main.watched);
  asan_leave(nullptr, main.stack, main.stack_bytes);  // null: this fibre is never resumed
  simt_switch(&fibre.saved, main.saved);
  std::abort();
}

void finish(Fibre& fibre) {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(fibre.watched);
#endif
  fibre.watched = nullptr;
}

#if defined(__SANITIZE_THREAD__)
SIMT_UNSEEN void release_key(const void* key) { __tsan_release(const_cast<void*>(key)); }
SIMT_UNSEEN void acquire_key(const void* key) { __tsan_acquire(const_cast<void*>(key)); }
#else
void release_key(const void*) {}
void acquire_key(const void*) {}
#endif

}  // namespace simt
