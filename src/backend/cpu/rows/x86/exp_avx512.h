// The engine's exp and the fixed order of lane sums with 512-bit registers (base/float_math.h,
// docs/numerics.md). For files that are built with AVX-512 only; everything is static.
#pragma once

#include <immintrin.h>

#include "base/float_math.h"

namespace leq::cpu {

// leq_exp of sixteen lanes, bit for bit, for x <= 88.
[[maybe_unused]] static inline __m512 exp_lanes_below(__m512 x) {
  const __m512 to_integer = _mm512_set1_ps(0x1.8p23f);
  const __m512 t = _mm512_mul_ps(x, _mm512_set1_ps(kLog2E));
  const __m512 n = _mm512_sub_ps(_mm512_add_ps(t, to_integer), to_integer);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2High), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2Low), r);
  __m512 p = _mm512_set1_ps(kExp6);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExp5));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExp4));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExp3));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExp2));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  const __m512 y = _mm512_scalef_ps(p, n);  // p * 2^n, exact: y is never subnormal
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(kExpLowest), _CMP_NLT_UQ), y);
}

// leq_exp of sixteen lanes, bit for bit.
[[maybe_unused]] static inline __m512 exp_lanes(__m512 x) {
  const __mmask16 over = _mm512_cmp_ps_mask(x, _mm512_set1_ps(kExpHighest), _CMP_GT_OQ);
  return _mm512_mask_mov_ps(exp_lanes_below(x), over, _mm512_set1_ps(__builtin_inff()));
}

// Lanes +8, +4, +2, +1.
[[maybe_unused]] static inline float add_lanes(__m512 v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

}  // namespace leq::cpu
