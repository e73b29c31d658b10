// Prefetch distances for the weights of one token. A panel is read sequentially, and the next panel
// usually follows it in memory.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/fetch.h"

namespace leq::cpu {
namespace {

// Distances in bytes of the prefetches into L2 and L1. L1 alone has too few fill buffers for the
// bandwidth of memory.
constexpr int kFarBytes = 8192;
constexpr int kNearBytes = 4096;
// Distance in bytes for Fetch::once.
constexpr int kOnceBytes = 8192;

// Prefetches the lines at these distances from `bytes`.
template <Fetch kFetch>
inline __attribute__((always_inline)) void fetch_ahead([[maybe_unused]] const std::uint8_t* bytes) {
  if constexpr (kFetch == Fetch::once) {
    _mm_prefetch(reinterpret_cast<const char*>(bytes + kOnceBytes), _MM_HINT_T0);
  } else if constexpr (kFetch == Fetch::twice) {
    _mm_prefetch(reinterpret_cast<const char*>(bytes + kFarBytes), _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(bytes + kNearBytes), _MM_HINT_T0);
  }
}

// Prefetches the scales of the groups after `group`, which are stored apart from the codes: f16
// [groups][64], or null.
inline __attribute__((always_inline)) void fetch_scales(const std::uint16_t* scales,
                                                        std::int64_t group) {
  constexpr std::int64_t kGroups = 8;
  if (scales == nullptr) return;
  const auto* line = reinterpret_cast<const char*>(scales + (group + kGroups) * 64);
  _mm_prefetch(line, _MM_HINT_T0);
  _mm_prefetch(line + 64, _MM_HINT_T0);
}

}  // namespace
}  // namespace leq::cpu
