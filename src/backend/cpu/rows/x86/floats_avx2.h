// Floats in 256-bit registers. For files that are built with AVX2 and FMA: each has its own copy,
// in an unnamed namespace.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/rows/exp_lanes.h"

namespace leq::cpu {
namespace {

struct Floats256 {
  using Floats = __m256;
  using Mask = __m256i;
  static constexpr int kLanes = 8;

  // A mask of all ones in the lanes below n.
  static Mask first_lanes(std::int64_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n < kLanes ? n : kLanes)), lane);
  }
  static Floats load(const float* from) { return _mm256_loadu_ps(from); }
  static Floats load(const float* from, Mask mask) { return _mm256_maskload_ps(from, mask); }
  static void store(float* to, Floats x) { _mm256_storeu_ps(to, x); }
  static void store(float* to, Floats x, Mask mask) { _mm256_maskstore_ps(to, mask, x); }
  // x in the lanes of the mask, +0 in the others.
  static Floats keep(Floats x, Mask mask) { return _mm256_and_ps(x, _mm256_castsi256_ps(mask)); }
  static Floats repeat(float x) { return _mm256_set1_ps(x); }
  static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static Floats fnma(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(a, b, c); }
  // Rounds x to an integer, ties to even; |x| is below 2^22.
  static Floats round(Floats x) { return x + 0x1.8p23f - 0x1.8p23f; }
  // p * 2^n
  static Floats times_power(Floats p, Floats n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return p * _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  }
  // y, or +0 where x is below the limit.
  static Floats zero_below(Floats x, float limit, Floats y) {
    return _mm256_and_ps(y, _mm256_cmp_ps(x, repeat(limit), _CMP_NLT_UQ));
  }
  static Floats infinite_above(Floats x, float limit, Floats y) {
    const __m256 above = _mm256_cmp_ps(x, repeat(limit), _CMP_GT_OQ);
    return _mm256_blendv_ps(y, repeat(__builtin_inff()), above);
  }
  static Floats silu(Floats c) { return times_sigmoid<Floats256>(c, c); }
};

[[maybe_unused]] inline __m256 exp_lanes_below(__m256 x) { return exp_below<Floats256>(x); }
[[maybe_unused]] inline __m256 exp_lanes(__m256 x) { return exp_of<Floats256>(x); }

// Adds sixteen lanes, held in two registers, in the fixed order: 8 apart, then 4, 2 and 1.
[[maybe_unused]] inline float add_lanes(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

}  // namespace
}  // namespace leq::cpu
