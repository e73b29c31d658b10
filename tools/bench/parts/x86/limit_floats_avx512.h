// Limits of f32 and f64 by vfmadd, 512 bits wide. Include only in files that define limits, as each
// gets its own copy in an unnamed namespace.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "eval/limits/limit_chains.h"

namespace leq::cpu {
namespace {

constexpr int kFloatChains = 24;  // hides a latency of 4 or 5 cycles at 2 instructions per cycle

float f32_products(std::int64_t rounds) noexcept {
  return multiply_adds<__m512, kFloatChains>(
      rounds, [](__m512 x, __m512 half, __m512 one) { return _mm512_fmadd_ps(x, half, one); });
}

double f64_products(std::int64_t rounds) noexcept {
  return multiply_adds<__m512d, kFloatChains>(
      rounds, [](__m512d x, __m512d half, __m512d one) { return _mm512_fmadd_pd(x, half, one); });
}

}  // namespace
}  // namespace leq::cpu
