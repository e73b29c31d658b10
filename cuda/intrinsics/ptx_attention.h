// Floating-point tensor-core instructions, wrapped like those of ptx.h: PTX for nvcc, plain C++ for
// the emulator. The hardware defines the order of sums in an f16 mma and the last bits of exp2, so
// the emulator's results are approximations.
#pragma once

#include "cuda/intrinsics/ptx.h"

#ifndef __CUDACC__
#include "base/float_math.h"
#endif

namespace leq::LEQ_GPU::ptx {

// D[16][8] += A[16][32] B[32][8] with a's bytes signed, b's unsigned; lanes: mma_m16n8k32_s8.
__device__ __forceinline__ void mma_m16n8k32_s8_u8(int (&d)[4], const std::uint32_t (&a)[4],
                                                   std::uint32_t b0, std::uint32_t b1) {
#ifdef __CUDA_ARCH__
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif !defined(__CUDACC__)
  simt::mma_m16n8(d, a, {b0, b1}, simt::bytes_of<std::int8_t>, simt::bytes_of<std::uint8_t>);
#endif
}

// D[16][8] += A[16][16] B[16][8], f16 inputs and f32 sums. g = lane / 4, t = lane % 4, j = 0, 1:
//   a[r] half j: row g + 8 (r % 2), column 2t + j + 8 (r / 2)
//   b[r] half j: k = 2t + j + 8 r, column g
//   d[i]:        row g + 8 (i / 2), column 2t + i % 2
// Products are exact. The hardware defines the order and rounding of the sum; the emulator uses
// fma in ascending k.
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const std::uint32_t (&a)[4],
                                                 std::uint32_t b0, std::uint32_t b1) {
#ifdef __CUDA_ARCH__
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif !defined(__CUDACC__)
  const auto halves = [](std::uint32_t both) {
    return std::array{leq::f16_to_f32(static_cast<std::uint16_t>(both)),
                      leq::f16_to_f32(static_cast<std::uint16_t>(both >> 16))};
  };
  simt::mma_m16n8(d, a, {b0, b1}, halves, halves);
#endif
}

// Like mma_m16n8k16_f16, with bf16 inputs.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                                  std::uint32_t b0, std::uint32_t b1) {
#ifdef __CUDA_ARCH__
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif !defined(__CUDACC__)
  const auto numbers = [](std::uint32_t both) {
    return std::array{leq::bf16_to_f32(static_cast<std::uint16_t>(both)),
                      leq::bf16_to_f32(static_cast<std::uint16_t>(both >> 16))};
  };
  simt::mma_m16n8(d, a, {b0, b1}, numbers, numbers);
#endif
}

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

// ldmatrix_x4 with each matrix transposed: a lane gets the numbers at rows 2 (lane % 4) and
// 2 (lane % 4) + 1, column lane / 4.
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row) {
#ifdef __CUDA_ARCH__
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
#elif !defined(__CUDACC__)
  simt::ldmatrix_x4<true>(r, row);
#endif
}

// Returns two f16 in a word, the first in the low half; each is rounded once, to nearest even.
__device__ __forceinline__ std::uint32_t f16x2_of(float first, float second) {
#ifdef __CUDA_ARCH__
  std::uint32_t both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
#else
  return f32_to_f16(first) | static_cast<std::uint32_t>(f32_to_f16(second)) << 16;
#endif
}

// Returns two bf16 in a word, the first in the low half; each is rounded once, to nearest even.
__device__ __forceinline__ std::uint32_t bf16x2_of(float first, float second) {
#ifdef __CUDA_ARCH__
  std::uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
#elif !defined(__CUDACC__)
  return leq::f32_to_bf16(first) | static_cast<std::uint32_t>(leq::f32_to_bf16(second)) << 16;
#else
  return 0;
#endif
}

#ifndef __CUDACC__
// Rounds once, to nearest even: the last bit of the intermediate f32 is sticky for bits cut off.
inline std::uint16_t f64_to_f16(double value) {
  auto near = static_cast<float>(value);
  if (near != value && std::isfinite(near)) {
    auto bits = std::bit_cast<std::uint32_t>(near);
    if (std::abs(double{near}) > std::abs(value)) --bits;
    near = std::bit_cast<float>(bits | 1u);
  }
  return leq::f32_to_f16(near);
}
inline double half_of(std::uint32_t both, unsigned index) {
  return leq::f16_to_f32(static_cast<std::uint16_t>(both >> 16 * index));
}
#endif

// a - b
__device__ __forceinline__ std::uint32_t f16x2_sub(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  std::uint32_t both;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b));
  return both;
#elif !defined(__CUDACC__)
  return f64_to_f16(half_of(a, 0) - half_of(b, 0)) |
         static_cast<std::uint32_t>(f64_to_f16(half_of(a, 1) - half_of(b, 1))) << 16;
#else
  return 0;
#endif
}

// a * b + c; before the single rounding it is exact in double if the result is finite
__device__ __forceinline__ std::uint32_t f16x2_fma(std::uint32_t a, std::uint32_t b,
                                                   std::uint32_t c) {
#ifdef __CUDA_ARCH__
  std::uint32_t both;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(both) : "r"(a), "r"(b), "r"(c));
  return both;
#elif !defined(__CUDACC__)
  return f64_to_f16(half_of(a, 0) * half_of(b, 0) + half_of(c, 0)) |
         static_cast<std::uint32_t>(f64_to_f16(half_of(a, 1) * half_of(b, 1) + half_of(c, 1)))
             << 16;
#else
  return 0;
#endif
}

// Returns 2^x with a relative error of about 2^-22; exactly 1 at 0, +0 at -infinity. The hardware
// defines the last bits.
__device__ __forceinline__ float exp2_near(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#elif !defined(__CUDACC__)
  return leq_exp(x * kLn2High);
#else
  return 0;
#endif
}

}  // namespace leq::LEQ_GPU::ptx
