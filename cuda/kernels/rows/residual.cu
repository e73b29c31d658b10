// Adds rows to the residual stream; limits the magnitude of logits.
#include "cuda/intrinsics/float_math.cuh"
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) add_rows(const LEQ_GRID_CONSTANT AddRowsArguments a) {
  LEQ_BOUNDS(kThreads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const float* y = a.y.values + blockIdx.x * a.y.stride;
  float* x = a.x.values + blockIdx.x * a.x.stride;
  for (std::int64_t k = threadIdx.x; k < a.width; k += kThreads) {
    x[k] = a.multiply ? x[k] * y[k] : (x[k] + y[k]) * a.scale;
  }
}

// A block has kThreads numbers of a row, because one row of logits is long.
__global__ void __launch_bounds__(kThreads) cap_rows(const LEQ_GRID_CONSTANT CapRowsArguments a) {
  LEQ_BOUNDS(kThreads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const std::int64_t k = std::int64_t{blockIdx.y} * kThreads + threadIdx.x;
  float* x = a.x.values + blockIdx.x * a.x.stride;
  if (k < a.width) x[k] = device_capped(x[k], a.scale, a.cap);
}

}  // namespace

void launch_add_rows(const AddRowsArguments& a, rt::Stream& stream) {
  rt::run(stream, {"add_rows", rt::grid(a.tokens), kThreads, 0, rt::Start::early}, add_rows, a);
}

void launch_cap_rows(const CapRowsArguments& a, rt::Stream& stream) {
  const dim3 blocks = rt::grid(a.rows, div_up(a.width, kThreads));
  rt::run(stream, {"cap_rows", blocks, kThreads, 0, rt::Start::early}, cap_rows, a);
}

}  // namespace leq::LEQ_GPU
