// Heads of rows times the Hadamard matrix: outputs of attention over values that are stored rotated.
#include "cuda/kernels/attention/attention_launch.h"
#include "cuda/kernels/attention/hadamard.cuh"
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"

namespace leq::LEQ_GPU {
namespace {

// One warp for each (row, head), the head in shared memory.
__global__ void __launch_bounds__(32) rotate_heads(FloatRows rows, int dims) {
  LEQ_BOUNDS(32);
  LEQ_DYNAMIC_SHARED(float, x);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  float* const there = rows.values + static_cast<std::int64_t>(blockIdx.x) * rows.stride +
                       static_cast<std::int64_t>(blockIdx.y) * dims;
  for (int c = static_cast<int>(threadIdx.x); c < dims; c += 32) x[c] = there[c];
  __syncwarp();
  rotate_head(x, dims, threadIdx.x);
  for (int c = static_cast<int>(threadIdx.x); c < dims; c += 32) there[c] = x[c];
}

}  // namespace

void launch_rotate_heads(const FloatRows& rows, std::int64_t tokens, const AttentionHeads& heads,
                         rt::Stream& stream) {
  rt::run(stream,
          {"rotate_heads", dim3(static_cast<unsigned>(tokens), static_cast<unsigned>(heads.heads)),
           dim3(32), static_cast<std::size_t>(heads.head_dim) * sizeof(float), rt::Start::early},
          rotate_heads, rows, heads.head_dim);
}

}  // namespace leq::LEQ_GPU
