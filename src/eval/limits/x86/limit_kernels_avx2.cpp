// Limits of AVX2: int8 products as vpmaddwd + vpaddd on widened codes, those of codes of at most 4
// bits as vpmaddubsw, f32 as vfmadd.
#include <immintrin.h>

#include "eval/limits/limit_floats.h"
#include "eval/limits/limit_kernels.h"

namespace leq::cpu {
namespace {
constexpr std::size_t kReadVector = 32;
#include "eval/limits/limit_read.inc"

// Two instructions a cycle, four or five cycles each. Products are assembly, because equal ones
// would be computed once, and because g++ 12 would keep sums in memory.
constexpr int kChains = 12;
constexpr int kCodeChains = 6;  // of sums in 16 bits and as many in 32
// Products that sums in 16 bits hold, of codes of 2, 3 and 4 bits.
constexpr int kInNarrow[] = {32, 16, 8};
constexpr double kCodeOperations = kCodeChains * 32 * 2.0;

// Products of pairs of codes that were widened to 16 bits.
std::int32_t int8_products(std::int64_t rounds) noexcept {
  const __m256i x = _mm256_set1_epi16(3);
  const __m256i y = _mm256_set1_epi16(-5);
  __m256i sums[kChains];
#pragma GCC unroll 24
  for (auto& sum : sums) sum = _mm256_setzero_si256();
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (auto& sum : sums) {
      __m256i products;
      asm volatile("vpmaddwd %2, %3, %0\n vpaddd %0, %1, %1"
                   : "=&x"(products), "+x"(sum)
                   : "x"(x), "x"(y));
    }
  }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sums[0] = _mm256_add_epi32(sums[0], sums[i]);
  return _mm256_extract_epi32(sums[0], 0);
}

// Products of pairs of bytes: so many sums in 16 bits before they are widened.
template <int kNarrow>
std::int32_t code_products(std::int64_t rounds) noexcept {
  const __m256i x = _mm256_set1_epi8(3);
  const __m256i y = _mm256_set1_epi8(-5);
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sums[kCodeChains];
#pragma GCC unroll 24
  for (auto& sum : sums) sum = _mm256_setzero_si256();
  for (std::int64_t round = 0; round < rounds; ++round) {
    __m256i narrow[kCodeChains], products;
#pragma GCC unroll 12
    for (auto& sum : narrow) asm volatile("vpmaddubsw %2, %1, %0" : "=&x"(sum) : "x"(x), "x"(y));
#pragma GCC unroll 7
    for (int i = 1; i < kNarrow; ++i) {
#pragma GCC unroll 12
      for (auto& sum : narrow) {
        asm volatile("vpmaddubsw %3, %2, %0\n vpaddw %0, %1, %1"
                     : "=&x"(products), "+x"(sum)
                     : "x"(x), "x"(y));
      }
    }
#pragma GCC unroll 12
    for (int i = 0; i < kCodeChains; ++i) {
      asm volatile("vpmaddwd %3, %2, %0\n vpaddd %0, %1, %1"
                   : "=&x"(products), "+x"(sums[i])
                   : "x"(narrow[i]), "x"(ones));
    }
  }
#pragma GCC unroll 24
  for (int i = 1; i < kCodeChains; ++i) sums[0] = _mm256_add_epi32(sums[0], sums[i]);
  return _mm256_extract_epi32(sums[0], 0);
}

float f32_products(std::int64_t rounds) noexcept {
  return multiply_adds<__m256, kChains>(
      rounds, [](__m256 x, __m256 half, __m256 one) { return _mm256_fmadd_ps(x, half, one); });
}

double f64_products(std::int64_t rounds) noexcept {
  return multiply_adds<__m256d, kChains>(
      rounds, [](__m256d x, __m256d half, __m256d one) { return _mm256_fmadd_pd(x, half, one); });
}

constexpr LimitKernels kKernels = {
    .read = kRead,
    .int8 = int8_products,
    .codes = {code_products<kInNarrow[0]>, code_products<kInNarrow[1]>,
              code_products<kInNarrow[2]>},
    .f32 = f32_products,
    .f64 = f64_products,
    .int8_operations = kChains * 16 * 2.0,
    .codes_operations = {kCodeOperations * kInNarrow[0], kCodeOperations* kInNarrow[1],
                         kCodeOperations* kInNarrow[2]},
    .f32_operations = kChains * 8 * 2.0,
    .f64_operations = kChains * 4 * 2.0,
    .int8_name = "vpmaddwd",
    .codes_name = "vpmaddubsw",
    .f32_name = "vfmadd"};

}  // namespace

const LimitKernels& limit_kernels_avx2() { return kKernels; }

}  // namespace leq::cpu
