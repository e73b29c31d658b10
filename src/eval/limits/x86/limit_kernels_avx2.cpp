// Limits of AVX2: int8 products as vpmaddwd + vpaddd on widened codes, f32 as vfmadd.
#include <immintrin.h>

#include "eval/limits/limit_kernels.h"

namespace leq::cpu {
namespace {
#include "eval/limits/limit_read.inc"

constexpr int kChains = 12;  // two instructions a cycle, four or five cycles each

std::int32_t int8_products(std::int64_t rounds) noexcept {
  const __m256i x = _mm256_set1_epi16(3);
  const __m256i y = _mm256_set1_epi16(-5);
  __m256i sums[kChains];
  for (auto& sum : sums) sum = _mm256_setzero_si256();
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      __m256i products;
      // Assembly, because equal products would be computed once.
      asm volatile("vpmaddwd %2, %1, %0" : "=x"(products) : "x"(x), "x"(y));
      sums[i] = _mm256_add_epi32(sums[i], products);
    }
  }
  for (int i = 1; i < kChains; ++i) sums[0] = _mm256_add_epi32(sums[0], sums[i]);
  return _mm256_extract_epi32(sums[0], 0);
}

float f32_products(std::int64_t rounds) noexcept {
  const __m256 half = _mm256_set1_ps(0.5f);
  const __m256 one = _mm256_set1_ps(1.0f);
  __m256 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = _mm256_fmadd_ps(sum, half, one);
  }
  for (int i = 1; i < kChains; ++i) sums[0] = _mm256_add_ps(sums[0], sums[i]);
  return _mm256_cvtss_f32(sums[0]);
}

double f64_products(std::int64_t rounds) noexcept {
  const __m256d half = _mm256_set1_pd(0.5);
  const __m256d one = _mm256_set1_pd(1.0);
  __m256d sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_set1_pd(static_cast<double>(i));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = _mm256_fmadd_pd(sum, half, one);
  }
  for (int i = 1; i < kChains; ++i) sums[0] = _mm256_add_pd(sums[0], sums[i]);
  return _mm256_cvtsd_f64(sums[0]);
}

constexpr LimitKernels kKernels = {.read = read_memory,
                                   .int8 = int8_products,
                                   .f32 = f32_products,
                                   .f64 = f64_products,
                                   .int8_operations = kChains * 16 * 2.0,
                                   .f32_operations = kChains * 8 * 2.0,
                                   .f64_operations = kChains * 4 * 2.0,
                                   .int8_name = "vpmaddwd",
                                   .f32_name = "vfmadd"};

}  // namespace

const LimitKernels& limit_kernels_avx2() { return kKernels; }

}  // namespace leq::cpu
