// Software prefetch for loops outside of kernels. g++ 12 regards a function that only prefetches as
// free of effects and drops calls to it unless they are inlined, so such functions must be
// always-inline or contain an empty asm statement.
#pragma once

#include <cstddef>

namespace leq {

// Prefetches the cache lines of `bytes` bytes from `from`: into the L2 cache with locality 2, into
// the L1 cache with locality 3.
template <int locality>
void prefetch(const void* from, std::size_t bytes) {
  const auto* const at = static_cast<const std::byte*>(from);
  asm volatile("");
  for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, locality);
}

}  // namespace leq
