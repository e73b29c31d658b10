// How far ahead one token's weights are fetched, a panel being read in a row (past its end lies the
// next one, as a rule).
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/fetch.h"

namespace leq::cpu {
namespace {

// Bytes ahead of those in use, into the second cache and into the first. The first alone has too
// few buffers for what memory can deliver.
constexpr int kFarBytes = 8192;
constexpr int kNearBytes = 4096;
// Fetch::once.
constexpr int kOnceBytes = 8192;

// Brings lines nearer that follow the line at `bytes`.
template <Fetch kFetch>
inline __attribute__((always_inline)) void fetch_ahead([[maybe_unused]] const std::uint8_t* bytes) {
  if constexpr (kFetch == Fetch::once) {
    _mm_prefetch(reinterpret_cast<const char*>(bytes + kOnceBytes), _MM_HINT_T0);
  } else if constexpr (kFetch == Fetch::twice) {
    _mm_prefetch(reinterpret_cast<const char*>(bytes + kFarBytes), _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(bytes + kNearBytes), _MM_HINT_T0);
  }
}

// Scales of a panel's groups further on than `group`, which lie apart from the codes: f16
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
