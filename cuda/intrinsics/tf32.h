// The matrix product of tf32 numbers on tensor cores.
#pragma once

#include "cuda/intrinsics/ptx.h"

namespace leq::LEQ_GPU::ptx {

// D[16][8] += A[16][8] B[8][8] with tf32 inputs, whose low 13 bits are zeros, and f32 sums.
// g = lane / 4, t = lane % 4:
//   a[r]: row g + 8 (r % 2), column t + 4 (r / 2)
//   b[r]: k = t + 4 r, column g
//   d[i]: row g + 8 (i / 2), column 2t + i % 2
// Products are exact. The hardware defines the order and rounding of the sum; the emulator uses
// fma in ascending k.
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
