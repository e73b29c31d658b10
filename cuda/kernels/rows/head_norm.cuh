// The RMS norm of one head, computed by a warp in the order of docs/numerics.md.
#pragma once

#include "cuda/intrinsics/reduce.cuh"

namespace leq::LEQ_GPU {

// x = x / sqrt(mean of x^2 + eps) * gain(k); x is in shared memory and was written by this warp.
template <class Gain>
__device__ __forceinline__ void norm_head(float* x, int dims, float eps, unsigned lane, Gain gain) {
  float squares[8] = {};  // sums of lanes lane + 32 i
#pragma unroll 1
  for (int first = static_cast<int>(lane); first < dims; first += 256) {
    for (int i = 0; i < 8; ++i) {
      const int k = first + 32 * i;
      if (k < dims) squares[i] = fmaf(x[k], x[k], squares[i]);
    }
  }
  const float r = 1.0f / sqrtf(norm_lanes_sum(squares) / static_cast<float>(dims) + eps);
  for (int k = static_cast<int>(lane); k < dims; k += 32) x[k] = (x[k] * r) * gain(k);
  __syncwarp();
}

}  // namespace leq::LEQ_GPU
