// The random-sign Hadamard rotation of the residual stream; one block per row, in shared memory.
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/reduce.cuh"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = 256;

// Returns the sum of a row in all threads. It is added in 16 lanes (k % 16), which are added at
// distances 8, 4, 2, 1: the CPU's order, so that codes after a rotation equal the CPU's.
__device__ float ordered_sum(const float* row, std::int64_t n) {
  LEQ_SHARED(float[1], total);
  if (threadIdx.x < 32) {
    float sum = 0;
    for (std::int64_t k = threadIdx.x; threadIdx.x < 16 && k < n; k += 16) sum += row[k];
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(kEveryLane, sum, step);
    if (threadIdx.x == 0) total[0] = sum;
  }
  __syncthreads();
  return total[0];
}

// A barrier follows each step, because a step's pairs cover the whole row. Strides are powers of
// two, so that pair p begins at p / stride * 2 stride + p % stride without a division.
__device__ void hadamard(float* row, int width, int block) {
  for (int stride = 1; stride < block; stride *= 2) {
    for (int pair = static_cast<int>(threadIdx.x); pair < width / 2; pair += kThreads) {
      const int low = pair + (pair & -stride);
      const float a = row[low], b = row[low + stride];
      row[low] = a + b;
      row[low + stride] = a - b;
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads) rotate_rows(const LEQ_GRID_CONSTANT RotateArguments a) {
  LEQ_BOUNDS(kThreads);
  LEQ_DYNAMIC_SHARED(float, row);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  float* x = a.x.values + blockIdx.x * a.x.stride;
  for (std::int64_t k = threadIdx.x; k < a.width; k += kThreads) row[k] = x[k];
  __syncthreads();
  if (!a.back) {
    const float mean = a.centred ? ordered_sum(row, a.width) / static_cast<float>(a.width) : 0.0f;
    for (std::int64_t k = threadIdx.x; k < a.width; k += kThreads) {
      row[k] = (a.centred ? row[k] - mean : row[k]) * a.factors[k];
    }
    __syncthreads();
  }
  hadamard(row, static_cast<int>(a.width), static_cast<int>(a.block));
  for (std::int64_t k = threadIdx.x; k < a.width; k += kThreads) {
    x[k] = a.back ? row[k] * a.factors[k] : row[k];
  }
}

}  // namespace

void launch_rotate(const RotateArguments& a, rt::Stream& stream) {
  if (a.tokens <= 0) return;
  rt::run(stream,
          {"rotate_rows", dim3(static_cast<unsigned>(a.tokens)), dim3(kThreads),
           static_cast<std::size_t>(a.width) * sizeof(float), rt::Start::early},
          rotate_rows, a);
}

}  // namespace leq::LEQ_GPU
