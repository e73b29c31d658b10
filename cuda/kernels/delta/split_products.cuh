// Products of f32 matrices on tensor cores: for nearly f32 accuracy, each is split into two tf32.
#pragma once

#include "cuda/intrinsics/tf32.h"

namespace leq::LEQ_GPU {

// x = high + low, with an error of at most 2^-22 of x.
struct SplitFloat {
  std::uint32_t high, low;

  __device__ __forceinline__ explicit SplitFloat(float x = 0) : high(cut(x)) {
    low = cut(x - __uint_as_float(high));
  }
  static __device__ __forceinline__ std::uint32_t cut(float x) {
    return __float_as_uint(x) & 0xffffe000u;
  }
};

// D[16][8 tiles] += A[16][8 steps] B[8 steps][8 tiles], computed by a warp; d has the layout of
// mma_m16n8k8_tf32. a(row, k) and b(k, column) return the numbers at k and k + 1 (k is even). The
// error is about 2^-20 of sum |a b|, because the products of two low parts are left out.
template <int tiles, class A, class B>
__device__ __forceinline__ void multiply_split(float (&d)[tiles][4], int steps, A a, B b) {
  // A is in global memory: this many steps of it are in flight.
  constexpr int kAhead = 4;
  const int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
  // A lane may use any two k if A and B agree; here they are neighbours, which are contiguous.
  float2 rows[kAhead][2];
  const auto load = [&](float2(&to)[2], int step) {
    if (step >= steps) return;
    to[0] = a(g, 8 * step + 2 * t);
    to[1] = a(g + 8, 8 * step + 2 * t);
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(rows[i], i);
#pragma unroll 1
  for (int first = 0; first < steps; first += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int step = first + i, k = 8 * step + 2 * t;
      if (step >= steps) break;
      const SplitFloat x[4] = {SplitFloat(rows[i][0].x), SplitFloat(rows[i][1].x),
                               SplitFloat(rows[i][0].y), SplitFloat(rows[i][1].y)};
      load(rows[i], step + kAhead);
      const std::uint32_t high[4] = {x[0].high, x[1].high, x[2].high, x[3].high};
      const std::uint32_t low[4] = {x[0].low, x[1].low, x[2].low, x[3].low};
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        const float2 column = b(k, 8 * tile + g);
        const SplitFloat y[2] = {SplitFloat(column.x), SplitFloat(column.y)};
        ptx::mma_m16n8k8_tf32(d[tile], low, {y[0].high, y[1].high});
        ptx::mma_m16n8k8_tf32(d[tile], high, {y[0].low, y[1].low});
        ptx::mma_m16n8k8_tf32(d[tile], high, {y[0].high, y[1].high});
      }
    }
  }
}

}  // namespace leq::LEQ_GPU
