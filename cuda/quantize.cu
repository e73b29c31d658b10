// Finished f32 rows to int8 codes, one block a row; and what the moving scale of act online needs
// to know of a step.
#include "cuda/ptx.h"
#include "cuda/quantize.cuh"
#include "cuda/run.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = 256;

__device__ void smooth(float* row, const float* factors, std::int64_t width) {
  for (std::int64_t k = threadIdx.x; k < width; k += kThreads) row[k] = row[k] * factors[k];
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads)
    quantize_rows(const LEQ_GRID_CONSTANT QuantizeArguments a) {
  LEQ_BOUNDS(kThreads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  float* row = a.x.values + blockIdx.x * a.x.stride;
  if (a.inv_smooth != nullptr) smooth(row, a.inv_smooth, a.width);
  if (a.quantize.out.codes != nullptr) quantize_row(row, blockIdx.x, a.width, a.quantize);
}

__global__ void __launch_bounds__(kThreads) step_absmax(const LEQ_GRID_CONSTANT AbsmaxArguments a) {
  LEQ_BOUNDS(kThreads);
  const unsigned largest = row_absmax(a.x.values + blockIdx.x * a.x.stride, a.width);
  if (threadIdx.x == 0) a.largest[blockIdx.x] = __uint_as_float(largest);
}

__global__ void __launch_bounds__(kThreads)
    step_clipped(const LEQ_GRID_CONSTANT ClippedArguments a) {
  LEQ_BOUNDS(kThreads);
  const float* row = a.x.values + blockIdx.x * a.x.stride;
  int above = 0;
  for (std::int64_t k = threadIdx.x; k < a.width; k += kThreads) above += fabsf(row[k]) > a.range;
  above = block_sum(above);
  if (threadIdx.x == 0) a.counts[blockIdx.x] = above;
}

}  // namespace

void launch_quantize(const QuantizeArguments& a, rt::Stream& stream) {
  if (a.tokens <= 0) return;
  rt::run(
      stream,
      {"quantize_rows", dim3(static_cast<unsigned>(a.tokens)), dim3(kThreads), 0, rt::Start::early},
      quantize_rows, a);
}

void launch_absmax(const AbsmaxArguments& a, rt::Stream& stream) {
  if (a.tokens <= 0) return;
  rt::run(stream, {"step_absmax", dim3(static_cast<unsigned>(a.tokens)), dim3(kThreads)},
          step_absmax, a);
}

void launch_clipped(const ClippedArguments& a, rt::Stream& stream) {
  if (a.tokens <= 0) return;
  rt::run(stream, {"step_clipped", dim3(static_cast<unsigned>(a.tokens)), dim3(kThreads)},
          step_clipped, a);
}

}  // namespace leq::LEQ_GPU
