// RMS norm or layer norm of rows, with their int8 codes or pieces: one block a row, which lies in
// shared memory between the passes, so that it is read once.
#include "cuda/kernels/rows/online.cuh"
#include "cuda/words/ptx.h"
#include "cuda/words/run.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = 256;  // one for each lane of a norm's sums

// The sum of all threads' lanes in every thread. The next one may begin after a barrier.
__device__ float lanes_sum(float lane) {
  LEQ_SHARED(float[kThreads], lanes);
  lanes[threadIdx.x] = lane;
  __syncthreads();
  float parts[kThreads / 32];
  for (unsigned i = 0; i < kThreads / 32; ++i) parts[i] = lanes[threadIdx.x % 32 + 32 * i];
  return norm_lanes_sum(parts);
}

// Mean of squares, after the mean for a layer norm: r = 1 / sqrt(that + eps).
struct Moments {
  float mean, r;
};

__device__ Moments moments(const float* row, const NormArguments& a) {
  const auto n = static_cast<float>(a.width);
  float mean = 0;
  if (a.form == NormForm::layer) {
    float sum = 0;
    for (std::int64_t k = threadIdx.x; k < a.width; k += kThreads) sum += row[k];
    mean = lanes_sum(sum) / n;
    __syncthreads();
  }
  float squares = 0;
  for (std::int64_t k = threadIdx.x; k < a.width; k += kThreads) {
    const float x = row[k] - mean;
    squares = fmaf(x, x, squares);
  }
  return {mean, 1.0f / sqrtf(lanes_sum(squares) / n + a.eps)};
}

__global__ void __launch_bounds__(kThreads) norm_rows(const LEQ_GRID_CONSTANT NormArguments a) {
  LEQ_BOUNDS(kThreads);
  LEQ_DYNAMIC_SHARED(float, row);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const std::int64_t token = blockIdx.x;
  const float* x = a.x.values + token * a.x.stride;
  for (std::int64_t k = threadIdx.x; k < a.width; k += kThreads) row[k] = x[k];
  const Moments m = moments(row, a);
  for (std::int64_t k = threadIdx.x; k < a.width; k += kThreads) {
    float y = (row[k] - m.mean) * m.r * a.gain[k];
    if (a.form == NormForm::layer) y = y + a.beta[k];
    if (a.inv_smooth != nullptr) y = y * a.inv_smooth[k];
    row[k] = y;
    if (a.out.values != nullptr) a.out.values[token * a.out.stride + k] = y;
  }
  __syncthreads();
  finish_row(row, token, a.width, a.quantize);
}

}  // namespace

void launch_norm(const NormArguments& a, rt::Stream& stream) {
  if (a.tokens <= 0) return;
  rt::run(stream,
          {"norm_rows", dim3(static_cast<unsigned>(a.tokens)), dim3(kThreads),
           static_cast<std::size_t>(a.width) * sizeof(float), rt::Start::early},
          norm_rows, a);
}

}  // namespace leq::LEQ_GPU
