// A head times the Hadamard matrix of types whose heads are rotated: the order of the CPU's
// rotate_head, so that both make the same bits.
#pragma once

#include "cuda/intrinsics/simt.h"

namespace leq::LEQ_GPU {

// x = H x / sqrt(n) in blocks of n = the largest power of two in dims, in place; steps of strides
// 1, 2, 4, ..., then one product. By a warp, x in shared memory.
__device__ __forceinline__ void rotate_head(float* x, int dims, unsigned lane) {
  const int block = dims & -dims;
  for (int stride = 1; stride < block; stride *= 2) {
    for (int i = static_cast<int>(lane); i < dims / 2; i += 32) {
      const int at = i / stride * 2 * stride + i % stride;
      const float a = x[at], b = x[at + stride];
      x[at] = a + b;
      x[at + stride] = a - b;
    }
    __syncwarp();
  }
  // 2^-(k / 2), as rounded from double.
  const int k = __popc(static_cast<unsigned>(block - 1));
  const float power = __uint_as_float(static_cast<unsigned>(127 - (k + 1) / 2) << 23);
  const float root = k % 2 == 0 ? power : power * 1.41421356237309504880f;
  for (int c = static_cast<int>(lane); c < dims; c += 32) x[c] = x[c] * root;
  __syncwarp();
}

}  // namespace leq::LEQ_GPU
