// The engine's exp and the fixed order of lane sums with 256-bit registers (base/float_math.h,
// docs/numerics.md). For files that are built with AVX2 and FMA; everything is static.
#pragma once

#include <immintrin.h>

#include "base/float_math.h"

namespace leq::cpu {

// leq_exp of eight lanes, bit for bit, for x <= 88.
[[maybe_unused]] static inline __m256 exp_lanes_below(__m256 x) {
  const __m256 to_integer = _mm256_set1_ps(0x1.8p23f);
  const __m256 t = _mm256_mul_ps(x, _mm256_set1_ps(kLog2E));
  const __m256 n = _mm256_sub_ps(_mm256_add_ps(t, to_integer), to_integer);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2High), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2Low), r);
  __m256 p = _mm256_set1_ps(kExp6);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExp5));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExp4));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExp3));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExp2));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  const __m256 power = _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  const __m256 y = _mm256_mul_ps(p, power);
  return _mm256_and_ps(y, _mm256_cmp_ps(x, _mm256_set1_ps(kExpLowest), _CMP_NLT_UQ));
}

// leq_exp of eight lanes, bit for bit.
[[maybe_unused]] static inline __m256 exp_lanes(__m256 x) {
  const __m256 over = _mm256_cmp_ps(x, _mm256_set1_ps(kExpHighest), _CMP_GT_OQ);
  return _mm256_blendv_ps(exp_lanes_below(x), _mm256_set1_ps(__builtin_inff()), over);
}

// Sixteen lanes in two registers: +8, +4, +2, +1.
[[maybe_unused]] static inline float add_lanes(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

}  // namespace leq::cpu
