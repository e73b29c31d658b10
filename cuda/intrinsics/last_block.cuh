// Blocks that finish parts of one thing and do not wait for each other: the last of them to come
// goes on with what the others wrote.
#pragma once

#include "cuda/intrinsics/ptx.h"

namespace leq::LEQ_GPU {

// True in every thread of the last of `blocks` blocks that bring this ticket, 0 before the first
// and again after the last: what all of them wrote to memory in front of it is there for
// read_fresh. All threads of a block call it. A block brings it once.
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

// Not from the first cache, which knows nothing of other blocks.
__device__ __forceinline__ float read_fresh(const float* at) { return ptx::load_relaxed(at); }

}  // namespace leq::LEQ_GPU
