// Rows in quads of four neighbouring columns, which a thread loads and stores as 16-byte vectors.
// Where a block processes a row, a thread's own quads begin at 4 threadIdx.x and every 4 blockDim.x
// columns: there is no need of a barrier between functions that access only these.
#pragma once

#include "cuda/intrinsics/simt.h"

namespace leq::LEQ_GPU {

struct alignas(16) Quad {
  float x[4];
};

__device__ __forceinline__ bool is_quad(const float* row, int k, int width) {
  return k + 4 <= width && (reinterpret_cast<std::uintptr_t>(row) & 15) == 0;
}

// Columns k ... k + 3 of a row, where k is a multiple of 4; columns past the width are 0.
__device__ __forceinline__ Quad load_quad(const float* row, int k, int width) {
  if (is_quad(row, k, width)) return *reinterpret_cast<const Quad*>(row + k);
  Quad quad;
#pragma unroll
  for (int i = 0; i < 4; ++i) quad.x[i] = k + i < width ? row[k + i] : 0.0f;
  return quad;
}

__device__ __forceinline__ void store_quad(float* row, int k, int width, const Quad& quad) {
  if (is_quad(row, k, width)) {
    *reinterpret_cast<Quad*>(row + k) = quad;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (k + i < width) row[k + i] = quad.x[i];
  }
}

}  // namespace leq::LEQ_GPU
