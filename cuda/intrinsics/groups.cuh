// Groups of columns that share a scale.
#pragma once

#include "cuda/intrinsics/simt.h"

namespace leq::LEQ_GPU {

// Returns log2 of a group of 32, 64 or 128 columns. Shifts by it replace divisions by a run-time
// value, which take thirty instructions.
__device__ __forceinline__ int group_shift(int group) {
  return 4 + (group >= 32) + (group >= 64) + (group >= 128);
}

}  // namespace leq::LEQ_GPU
