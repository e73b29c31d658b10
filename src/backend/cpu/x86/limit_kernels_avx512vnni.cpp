// Limits of AVX-512 with VNNI: int8 products as vpdpbusd, f32 as vfmadd, 512 bits wide.
#include <immintrin.h>

#include "backend/cpu/limit_kernels.h"

namespace leq::cpu {
namespace {
#include "backend/cpu/limit_read.inc"

constexpr int kChains = 24;  // two instructions a cycle, four or five cycles each

std::int32_t int8_products(std::int64_t rounds) noexcept {
  const __m512i x = _mm512_set1_epi8(3);
  const __m512i y = _mm512_set1_epi8(-5);
  __m512i sums[kChains];
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (auto& sum : sums) {
      // Assembly, because g++ 12 moves and spills the sums around the intrinsic.
      asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    }
  }
  for (int i = 1; i < kChains; ++i) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
  return _mm512_cvtsi512_si32(sums[0]);
}

float f32_products(std::int64_t rounds) noexcept {
  const __m512 half = _mm512_set1_ps(0.5f);
  const __m512 one = _mm512_set1_ps(1.0f);
  __m512 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (auto& sum : sums) sum = _mm512_fmadd_ps(sum, half, one);
  }
  for (int i = 1; i < kChains; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return _mm512_cvtss_f32(sums[0]);
}

constexpr LimitKernels kKernels = {
    read_memory,        int8_products, f32_products, kChains * 64 * 2.0,
    kChains * 16 * 2.0, "vpdpbusd",    "vfmadd"};

}  // namespace

const LimitKernels& limit_kernels_avx512vnni() { return kKernels; }

}  // namespace leq::cpu
