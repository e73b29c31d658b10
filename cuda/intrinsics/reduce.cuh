// Sums and maxima over a warp and over a block, in a fixed order for a given number of threads.
#pragma once

#include "cuda/intrinsics/simt.h"

namespace leq::LEQ_GPU {

inline constexpr unsigned kEveryLane = 0xffffffffu;

template <class T>
__device__ __forceinline__ T warp_sum(T value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kEveryLane, value, step);
  return value;
}

__device__ __forceinline__ int warp_sum(int value) { return __reduce_add_sync(kEveryLane, value); }

// Returns the sum of the 256 lanes of a norm in every thread of a warp. Thread t passes lanes
// t, t + 32, ... t + 224; the order is lanes +128, +64, ... +1 (docs/numerics.md).
__device__ __forceinline__ float norm_lanes_sum(const float (&parts)[8]) {
  const float even = (parts[0] + parts[4]) + (parts[2] + parts[6]);
  const float odd = (parts[1] + parts[5]) + (parts[3] + parts[7]);
  return warp_sum(even + odd);
}

template <class T>
__device__ __forceinline__ T warp_max(T value) {
  for (int step = 16; step > 0; step /= 2) {
    value = max(value, __shfl_xor_sync(kEveryLane, value, step));
  }
  return value;
}

__device__ __forceinline__ unsigned warp_max(unsigned value) {
  return __reduce_max_sync(kEveryLane, value);
}

// Combines all threads' values by `combine`; every thread gets the result. Blocks consist of whole
// warps. Ends with a barrier, so that the next reduction may begin at once.
template <class T, class WarpCombine>
__device__ __forceinline__ T block_reduce(T value, WarpCombine combine) {
  LEQ_SHARED(T[32], parts);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  value = combine(value);
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  value = combine(lane < warps ? parts[lane] : T(0));
  __syncthreads();
  return value;
}

// 0 is the identity of both reductions, because maxima are only taken of non-negative numbers.
template <class T>
__device__ __forceinline__ T block_sum(T value) {
  return block_reduce(value, [](T v) { return warp_sum(v); });
}
template <class T>
__device__ __forceinline__ T block_max(T value) {
  return block_reduce(value, [](T v) { return warp_max(v); });
}

}  // namespace leq::LEQ_GPU
