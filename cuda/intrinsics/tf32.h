// Products of f32 matrices on tensor cores, near f32: each number is split into two of 11 bits.
#pragma once

#include "cuda/intrinsics/ptx.h"

namespace leq::LEQ_GPU::ptx {

// D[16][8] += A[16][8] B[8][8], tf32 in (the low 13 bits are zeros), f32 sums. g = lane / 4,
// t = lane % 4:
//   a[r]: row g + 8 (r % 2), column t + 4 (r / 2)
//   b[r]: k = t + 4 r, column g
//   d[i]: row g + 8 (i / 2), column 2t + i % 2
// Products are exact. The order and the rounding of the sum are the hardware's own; here: fma in
// ascending k.
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const std::uint32_t (&a)[4],
                                                 const std::uint32_t (&b)[2]) {
#ifdef __CUDA_ARCH__
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif !defined(__CUDACC__)
  const auto number = [](std::uint32_t bits) { return std::array{std::bit_cast<float>(bits)}; };
  simt::mma_m16n8(d, a, b, number, number);
#endif
}

}  // namespace leq::LEQ_GPU::ptx

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

// D[16][8 tiles] += A[16][8 steps] B[8 steps][8 tiles] of a warp, d laid out as in
// mma_m16n8k8_tf32. a(row, k), b(k, column): the numbers at k and k + 1, k even. Error about 2^-20
// of sum |a b|: the products of two low parts are omitted.
template <int tiles, class A, class B>
__device__ __forceinline__ void multiply_split(float (&d)[tiles][4], int steps, A a, B b) {
  const int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll 2
  for (int step = 0; step < steps; ++step) {
    // The assignment of k to lanes is free if a and b agree: a lane's two are adjacent in memory.
    const int k = 8 * step + 2 * t;
    const float2 above = a(g, k), below = a(g + 8, k);
    const SplitFloat x[4] = {SplitFloat(above.x), SplitFloat(below.x), SplitFloat(above.y),
                             SplitFloat(below.y)};
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

}  // namespace leq::LEQ_GPU
