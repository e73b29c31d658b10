// The columns of a row, held in registers by the threads of a block. Their loads are in flight
// together and, if no kernel writes the data, are issued before the wait for the preceding kernel.
#pragma once

#include "cuda/intrinsics/simt.h"

namespace leq::LEQ_GPU {

inline constexpr int kHeldColumns = 16;  // columns of a thread; 4,096 in a block of 256 threads

// A thread has the columns threadIdx.x + i * threads of `from` in registers, or 0 past the width.
// Columns past the last one in registers are read from memory at each use.
template <int threads>
struct HeldColumns {
  const float* from;
  float held[kHeldColumns];

  __device__ __forceinline__ HeldColumns(const float* row, std::int64_t width) : from(row) {
#pragma unroll
    for (int i = 0; i < kHeldColumns; ++i) {
      const int k = static_cast<int>(threadIdx.x) + i * threads;
      held[i] = row != nullptr && k < width ? row[k] : 0.0f;
    }
  }
};

// Calls body(column, i) for a thread's columns in ascending order. i is a constant for columns in
// registers, and kHeldColumns for other columns.
template <int threads, class Body>
__device__ __forceinline__ void for_columns(std::int64_t width, Body body) {
  const int last = static_cast<int>(width), first = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kHeldColumns; ++i) {
    if (first + i * threads < last) body(first + i * threads, i);
  }
  for (int k = first + kHeldColumns * threads; k < last; k += threads) body(k, kHeldColumns);
}
template <int threads>
__device__ __forceinline__ float column_of(const HeldColumns<threads>& columns, int k, int i) {
  return i < kHeldColumns ? columns.held[i < kHeldColumns ? i : 0] : columns.from[k];
}

}  // namespace leq::LEQ_GPU
