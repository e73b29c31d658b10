// Brings nearer what attention will read next. For files of kernels: each has its own copy, in an
// unnamed namespace.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/attention/attention_kernels.h"

namespace leq::cpu {
namespace {

// The share of columns [first, last) of `columns`: a page's columns are read in several passes.
inline Ahead share_of(const Ahead& all, std::int64_t first, std::int64_t last,
                      std::int64_t columns) {
  if (all.count == 0) return {};
  const std::int64_t begin = all.count * first / columns;
  const std::int64_t end = last < columns ? all.count * last / columns : all.count;
  return {all.lines + begin * 64, end - begin};
}

// Walks along the keys that a tile's blocks take, `at_once` of them in one walk.
inline std::int64_t turns(const ScoreTile& tile, int at_once) {
  return (tile.last_block - tile.first_block + at_once - 1) / at_once;
}

// Prefetches lines evenly over the steps of a loop, into the second-level cache: the first level
// has too few buffers for what memory can deliver.
class Prefetcher {
 public:
  Prefetcher(const Ahead& ahead, std::int64_t steps)
      : next_(reinterpret_cast<const char*>(ahead.lines)),
        end_(next_ + ahead.count * 64),
        step_bytes_(ahead.count == 0 ? 0 : (ahead.count + steps - 1) / steps * 64) {}

  void step() {
    if (step_bytes_ == 0) return;
    for (const char* stop = next_ + step_bytes_; next_ < stop && next_ < end_; next_ += 64) {
      _mm_prefetch(next_, _MM_HINT_T1);
    }
  }

 private:
  const char* next_;
  const char* end_;
  std::int64_t step_bytes_;
};

}  // namespace
}  // namespace leq::cpu
