// Lines of the cache that are wanted soon, as loops ask for them that are no kernels. g++ 12 takes
// a function that does nothing but prefetch for one without effect, and drops calls that it has not
// inlined: such functions are always inlined, or hold an empty asm.
#pragma once

#include <cstddef>

namespace leq {

// Brings the lines that hold `bytes` from `from` on nearer: with locality 2 into the second-level
// cache, with 3 into the first.
template <int locality>
void prefetch(const void* from, std::size_t bytes) {
  const auto* const at = static_cast<const std::byte*>(from);
  asm volatile("");
  for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, locality);
}

}  // namespace leq
