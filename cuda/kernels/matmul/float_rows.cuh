// f32 activations times f32 weights. Every output is the chain of docs/numerics.md with 16 lanes
// (column % 16), bit-identical to the CPU: each of four threads has four lanes of a row's chain.
#pragma once

#include "cuda/intrinsics/reduce.cuh"
#include "cuda/kernels/matmul/matmul_finish.cuh"

namespace leq::LEQ_GPU {

inline constexpr int kFloatWarps = 4;
inline constexpr int kFloatRows = 8 * kFloatWarps;  // rows of a block

// A thread's columns of row n: 4 q ... 4 q + 3 of each block of 16, with q = thread % 4.
__device__ __forceinline__ const float4* row_quads(const FloatSegment& segment, std::int64_t n,
                                                   std::int64_t columns) {
  const auto* values = static_cast<const float*>(segment.weight.values);
  return reinterpret_cast<const float4*>(values + n * float_stride(columns)) + threadIdx.x % 4;
}

// Adds the 16 lanes of a row's chain over its four threads, in the order +8, +4, +2, +1.
__device__ __forceinline__ float chain_total(const float (&lanes)[4]) {
  float sums[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[i] = lanes[i] + __shfl_xor_sync(kEveryLane, lanes[i], 2);
    sums[i] = sums[i] + __shfl_xor_sync(kEveryLane, sums[i], 1);
  }
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

// Prefetches the beginning of row n while the preceding kernel is still running.
__device__ __forceinline__ void prefetch_row(const FloatMatmul& a, const FloatSegment& segment,
                                             std::int64_t n) {
  const auto quads = static_cast<int>(float_stride(a.columns) / 4);
  const float4* const row = row_quads(segment, min(n, segment.rows - 1), a.columns);
  ptx::prefetch(row + min(static_cast<int>(threadIdx.x % 4) * 4, quads - 4));
}

// Returns in all four threads y[t] of row n of a segment, for the tokens from `first` on.
template <int tokens>
__device__ __forceinline__ void row_values(const FloatMatmul& a, const FloatSegment& segment,
                                           std::int64_t n, std::int64_t first, float (&y)[tokens]) {
  const std::int64_t exists = min(n, segment.rows - 1);
  const float4* const row = row_quads(segment, exists, a.columns);
  const float* x[tokens];
#pragma unroll
  for (int t = 0; t < tokens; ++t) {
    x[t] = a.values.values + min(first + t, a.tokens - 1) * a.values.stride + threadIdx.x % 4 * 4;
  }
  float lanes[tokens][4] = {};
  // Weights and inputs are padded with zeros up to a multiple of 32 columns.
  const int blocks = static_cast<int>((a.columns + 15) / 16);
  const auto multiply = [&](const float4& w, int block) {
#pragma unroll
    for (int t = 0; t < tokens; ++t) {
      const float4 values = *reinterpret_cast<const float4*>(x[t] + block * 16);
      lanes[t][0] = fmaf(values.x, w.x, lanes[t][0]);
      lanes[t][1] = fmaf(values.y, w.y, lanes[t][1]);
      lanes[t][2] = fmaf(values.z, w.z, lanes[t][2]);
      lanes[t][3] = fmaf(values.w, w.w, lanes[t][3]);
    }
  };
  // Four loads are in flight before the first is used.
  int block = 0;
  for (; block + 4 <= blocks; block += 4) {
    float4 loaded[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) loaded[i] = row[(block + i) * 4];
#pragma unroll
    for (int i = 0; i < 4; ++i) multiply(loaded[i], block + i);
  }
  for (; block < blocks; ++block) multiply(row[block * 4], block);
#pragma unroll
  for (int t = 0; t < tokens; ++t) {
    y[t] = chain_total(lanes[t]);
    if (segment.bias != nullptr) y[t] = y[t] + segment.bias[exists];
  }
}

// Block x has rows of one segment (if gated, rows of gate and of up), block y has tokens.
template <int tokens>
__global__ void __launch_bounds__(kFloatWarps * 32, 1)
    float_rows(const LEQ_GRID_CONSTANT FloatMatmul a) {
  LEQ_BOUNDS(kFloatWarps * 32);
  const bool paired = is_gated(a.finish);
  int segment = 0;
  std::int64_t tile = blockIdx.x, column = 0;
  while (!paired && segment + 1 < a.segment_count) {
    const std::int64_t tiles = (a.segments[segment].rows + kFloatRows - 1) / kFloatRows;
    if (tile < tiles) break;
    tile -= tiles;
    column += a.segments[segment++].rows;
  }
  const std::int64_t n = tile * kFloatRows + threadIdx.x / 4;
  const std::int64_t first = std::int64_t{blockIdx.y} * tokens;
  float y[tokens], up[tokens] = {};
  prefetch_row(a, a.segments[segment], n);
  if (paired) prefetch_row(a, a.segments[1], n);
  ptx::wait_for_predecessor();
  row_values(a, a.segments[segment], n, first, y);
  if (paired) row_values(a, a.segments[1], n, first, up);
  ptx::let_successor_start();
  if (n >= a.segments[segment].rows) return;
#pragma unroll
  for (int t = 0; t < tokens; ++t) {
    if (t % 4 != static_cast<int>(threadIdx.x % 4) || first + t >= a.tokens) continue;
    finish(a.finish, a.out, first + t, column + n, y[t], up[t]);
  }
}

}  // namespace leq::LEQ_GPU
