// Limits of f32 and f64 as vfmadd, 512 bits wide. For files of limits: each has its own copy, in an
// unnamed namespace.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace leq::cpu {
namespace {

constexpr int kFloatChains = 24;  // two instructions a cycle, four or five cycles each

float f32_products(std::int64_t rounds) noexcept {
  const __m512 half = _mm512_set1_ps(0.5f);
  const __m512 one = _mm512_set1_ps(1.0f);
  __m512 sums[kFloatChains];
#pragma GCC unroll 24
  for (int i = 0; i < kFloatChains; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (auto& sum : sums) sum = _mm512_fmadd_ps(sum, half, one);
  }
#pragma GCC unroll 24
  for (int i = 1; i < kFloatChains; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return _mm512_cvtss_f32(sums[0]);
}

double f64_products(std::int64_t rounds) noexcept {
  const __m512d half = _mm512_set1_pd(0.5);
  const __m512d one = _mm512_set1_pd(1.0);
  __m512d sums[kFloatChains];
#pragma GCC unroll 24
  for (int i = 0; i < kFloatChains; ++i) sums[i] = _mm512_set1_pd(static_cast<double>(i));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (auto& sum : sums) sum = _mm512_fmadd_pd(sum, half, one);
  }
#pragma GCC unroll 24
  for (int i = 1; i < kFloatChains; ++i) sums[0] = _mm512_add_pd(sums[0], sums[i]);
  return _mm512_cvtsd_f64(sums[0]);
}

}  // namespace
}  // namespace leq::cpu
