// Floats in 512-bit registers. For files that are built with AVX-512: each has its own copy, in an
// unnamed namespace.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/rows/exp_lanes.h"

namespace leq::cpu {
namespace {

struct Floats512 {
  using Floats = __m512;
  using Mask = __mmask16;
  static constexpr int kLanes = 16;

  // A mask of the lanes below n.
  static Mask first_lanes(std::int64_t n) {
    return static_cast<Mask>(n >= kLanes ? 0xffffu : (1u << n) - 1u);
  }
  static Floats load(const float* from) { return _mm512_loadu_ps(from); }
  static Floats load(const float* from, Mask mask) { return _mm512_maskz_loadu_ps(mask, from); }
  static void store(float* to, Floats x) { _mm512_storeu_ps(to, x); }
  static void store(float* to, Floats x, Mask mask) { _mm512_mask_storeu_ps(to, mask, x); }
  // x in the lanes of the mask, +0 in the others.
  static Floats keep(Floats x, Mask mask) { return _mm512_maskz_mov_ps(mask, x); }
  static Floats repeat(float x) { return _mm512_set1_ps(x); }
  static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats fnma(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }
  // Rounds x to an integer, ties to even; |x| is below 2^22.
  static Floats round(Floats x) { return x + 0x1.8p23f - 0x1.8p23f; }
  // p * 2^n; exact, because the result is never subnormal.
  static Floats times_power(Floats p, Floats n) { return _mm512_scalef_ps(p, n); }
  // y, or +0 where x is below the limit.
  static Floats zero_below(Floats x, float limit, Floats y) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, repeat(limit), _CMP_NLT_UQ), y);
  }
  static Floats infinite_above(Floats x, float limit, Floats y) {
    const __mmask16 above = _mm512_cmp_ps_mask(x, repeat(limit), _CMP_GT_OQ);
    return _mm512_mask_mov_ps(y, above, repeat(__builtin_inff()));
  }
  static Floats silu(Floats c) { return times_sigmoid<Floats512>(c, c); }
};

[[maybe_unused]] inline __m512 exp_lanes_below(__m512 x) { return exp_below<Floats512>(x); }
[[maybe_unused]] inline __m512 exp_lanes(__m512 x) { return exp_of<Floats512>(x); }

// Adds the lanes in the fixed order: 8 apart, then 4, 2 and 1.
[[maybe_unused]] inline float add_lanes(__m512 v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

}  // namespace
}  // namespace leq::cpu
