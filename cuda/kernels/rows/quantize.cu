// Encodes finished f32 rows as int8 codes or terms.
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/rows/online.cuh"

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = 256, kColumns = kThreads * 4;

// Loads a quad of row blockIdx.x and multiplies it by inv_smooth, in place.
__device__ __forceinline__ Quad smoothed(const QuantizeArguments& a, float* row, int k,
                                         const Quad& factors) {
  const int width = static_cast<int>(a.width);
  Quad quad = load_quad(row, k, width);
  if (a.inv_smooth == nullptr) return quad;
#pragma unroll
  for (int i = 0; i < 4; ++i) quad.x[i] = quad.x[i] * factors.x[i];
  store_quad(row, k, width, quad);
  return quad;
}
__device__ __forceinline__ Quad factors_at(const QuantizeArguments& a, int k) {
  if (a.inv_smooth == nullptr) return {};
  return load_quad(a.inv_smooth, k, static_cast<int>(a.width));
}

// One block per row.
__global__ void __launch_bounds__(kThreads)
    quantize_rows(const LEQ_GRID_CONSTANT QuantizeArguments a) {
  LEQ_BOUNDS(kThreads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  float* const row = a.x.values + blockIdx.x * a.x.stride;
  if (a.inv_smooth != nullptr) {
    for (int k = static_cast<int>(threadIdx.x) * 4; k < a.width; k += kColumns) {
      smoothed(a, row, k, factors_at(a, k));
    }
  }
  finish_row(row, blockIdx.x, a.width, a.quantize);
}

// For scales of groups, which do not depend on each other: a block has kColumns of a row.
__global__ void __launch_bounds__(kThreads)
    quantize_groups(const LEQ_GRID_CONSTANT QuantizeArguments a) {
  LEQ_BOUNDS(kThreads);
  ptx::let_successor_start();
  const int first = static_cast<int>(blockIdx.y * kColumns + threadIdx.x / 32 * 128);
  const int k = first + static_cast<int>(threadIdx.x % 32) * 4;
  const Quad factors = factors_at(a, k);
  ptx::wait_for_predecessor();
  if (first >= padded_columns(a.width)) return;
  const std::int64_t token = blockIdx.x;
  const Quad quad = smoothed(a, a.x.values + token * a.x.stride, k, factors);
  if (a.quantize.out.codes != nullptr) quantize_quad(quad, token, first, a.quantize);
}

}  // namespace

void launch_quantize(const QuantizeArguments& a, rt::Stream& stream) {
  if (a.width <= 0) return;  // a rank may have no columns
  if (!has_own_groups(a.quantize)) {
    return rt::run(stream, {"quantize_rows", rt::grid(a.tokens), kThreads, 0, rt::Start::early},
                   quantize_rows, a);
  }
  const dim3 blocks = rt::grid(a.tokens, div_up(a.width, kColumns));
  rt::run(stream, {"quantize_groups", blocks, kThreads, 0, rt::Start::early}, quantize_groups, a);
}

}  // namespace leq::LEQ_GPU
