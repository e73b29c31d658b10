// For blocks that compute parts of one result without waiting for each other: the last block that
// finishes continues with the results of all blocks.
#pragma once

#include "cuda/intrinsics/ptx.h"

namespace leq::LEQ_GPU {

// Returns true in every thread of the last of `blocks` blocks that use this ticket; read_fresh then
// returns what all of these wrote before. The ticket must be 0 before the first call and is 0 again
// after the last. All threads of a block must call this, once per block.
__device__ __forceinline__ bool is_last_block(unsigned* ticket, unsigned blocks) {
  LEQ_SHARED(bool, last);
  __syncthreads();
  if (threadIdx.x == 0) {
    last = ptx::add_acquire_release(ticket, 1u) + 1 == blocks;
    if (last) *ticket = 0;
  }
  __syncthreads();
  return last;
}

// Reads past the L1 cache, which is not coherent with other blocks' writes.
__device__ __forceinline__ float read_fresh(const float* at) { return ptx::load_relaxed(at); }

}  // namespace leq::LEQ_GPU
