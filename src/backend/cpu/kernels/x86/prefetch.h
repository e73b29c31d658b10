// Prefetches of the data that matmuls and attention read next. For kernel files: each has its own
// copy, in an unnamed namespace.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/kernels/kernels.h"

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
inline __attribute__((always_inline)) void fetch_scales(const IntPanel& panel, std::int64_t group) {
  constexpr std::int64_t kGroups = 8;
  if (panel.group_scales == nullptr) return;
  const std::int64_t bytes = panel.byte_scales ? 64 : 128;
  const auto* line = reinterpret_cast<const char*>(panel.group_scales) + (group + kGroups) * bytes;
  _mm_prefetch(line, _MM_HINT_T0);
  _mm_prefetch(line + 64, _MM_HINT_T0);
}

// The share of the lines that the pass over columns [first, last) of `columns` prefetches.
inline Ahead share_of(const Ahead& all, std::int64_t first, std::int64_t last,
                      std::int64_t columns) {
  if (all.count == 0) return {};
  const std::int64_t begin = all.count * first / columns;
  const std::int64_t end = last < columns ? all.count * last / columns : all.count;
  return {all.lines + begin * 64, end - begin};
}

// The number of passes over the keys of a tile's blocks, with `at_once` blocks in each pass.
inline std::int64_t turns(const ScoreTile& tile, int at_once) {
  return (tile.last_block - tile.first_block + at_once - 1) / at_once;
}

// Spreads prefetches into L2 evenly over the steps of a loop; L1 has too few fill buffers for the
// bandwidth of memory. A step computes its lines from its index, because a moving pointer was
// spilled to memory in every step, which took longer than the products.
class Prefetcher {
 public:
  Prefetcher(const Ahead& ahead, std::int64_t steps)
      : lines_(reinterpret_cast<const char*>(ahead.lines)),
        count_(ahead.count),
        each_(ahead.count <= steps ? 1 : (ahead.count + steps - 1) / steps) {}

  // Must be inlined, because otherwise its calls may be dropped (base/prefetch.h).
  inline __attribute__((always_inline)) void step(std::int64_t index) const {
    const std::int64_t line = index * each_;
    if (line >= count_) return;
    for (std::int64_t i = 0; i < each_; ++i) {  // the last step may exceed count_
      _mm_prefetch(lines_ + (line + i) * 64, _MM_HINT_T1);
    }
  }

  // The lines that remain after the first `steps` steps.
  Prefetcher after(std::int64_t steps) const {
    Prefetcher rest = *this;
    const std::int64_t gone = steps * each_ < count_ ? steps * each_ : count_;
    rest.lines_ += gone * 64;
    rest.count_ -= gone;
    return rest;
  }

 private:
  const char* lines_;
  std::int64_t count_;
  std::int64_t each_;
};

}  // namespace
}  // namespace leq::cpu
