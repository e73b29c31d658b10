// Limits of AVX-512 without VNNI: all products as on AVX2, 512 bits wide; reading as on AVX2.
#include <immintrin.h>

#include "eval/limits/limit_kernels.h"
#include "eval/limits/x86/limit_floats_avx512.h"

namespace leq::cpu {
namespace {

constexpr int kChains = 24;
constexpr int kCodeChains = 12;
// Products that sums in 16 bits hold, of codes of 2, 3 and 4 bits.
constexpr int kInNarrow[] = {32, 16, 8};

// Products of pairs of codes that were widened to 16 bits.
std::int32_t int8_products(std::int64_t rounds) noexcept {
  const __m512i x = _mm512_set1_epi16(3);
  const __m512i y = _mm512_set1_epi16(-5);
  __m512i sums[kChains];
#pragma GCC unroll 24
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (auto& sum : sums) {
      __m512i products;
      asm volatile("vpmaddwd %2, %3, %0\n vpaddd %0, %1, %1"
                   : "=&v"(products), "+v"(sum)
                   : "v"(x), "v"(y));
    }
  }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
  return _mm_cvtsi128_si32(_mm512_castsi512_si128(sums[0]));
}

// Products of pairs of bytes: so many sums in 16 bits before they are widened.
template <int kNarrow>
std::int32_t code_products(std::int64_t rounds) noexcept {
  const __m512i x = _mm512_set1_epi8(3);
  const __m512i y = _mm512_set1_epi8(-5);
  const __m512i ones = _mm512_set1_epi16(1);
  __m512i sums[kCodeChains];
#pragma GCC unroll 24
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  for (std::int64_t round = 0; round < rounds; ++round) {
    __m512i narrow[kCodeChains], products;
#pragma GCC unroll 12
    for (auto& sum : narrow) asm volatile("vpmaddubsw %2, %1, %0" : "=&v"(sum) : "v"(x), "v"(y));
#pragma GCC unroll 7
    for (int i = 1; i < kNarrow; ++i) {
#pragma GCC unroll 12
      for (auto& sum : narrow) {
        asm volatile("vpmaddubsw %3, %2, %0\n vpaddw %0, %1, %1"
                     : "=&v"(products), "+v"(sum)
                     : "v"(x), "v"(y));
      }
    }
#pragma GCC unroll 12
    for (int i = 0; i < kCodeChains; ++i) {
      asm volatile("vpmaddwd %3, %2, %0\n vpaddd %0, %1, %1"
                   : "=&v"(products), "+v"(sums[i])
                   : "v"(narrow[i]), "v"(ones));
    }
  }
#pragma GCC unroll 24
  for (int i = 1; i < kCodeChains; ++i) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
  return _mm_cvtsi128_si32(_mm512_castsi512_si128(sums[0]));
}

}  // namespace

const LimitKernels& limit_kernels_avx512() {
  static const LimitKernels kKernels = [] {
    LimitKernels kernels = limit_kernels_avx2();
    kernels.int8 = int8_products;
    kernels.int8_operations = kChains * 32 * 2.0;
    kernels.int8_name = "vpmaddwd (512 bits)";
    kernels.codes = {code_products<kInNarrow[0]>, code_products<kInNarrow[1]>,
                     code_products<kInNarrow[2]>};
    for (std::size_t i = 0; i < kernels.codes.size(); ++i) {
      kernels.codes_operations[i] = kCodeChains * kInNarrow[i] * 64 * 2.0;
    }
    kernels.codes_name = "vpmaddubsw (512 bits)";
    kernels.f32 = f32_products;
    kernels.f64 = f64_products;
    kernels.f32_operations = kFloatChains * 16 * 2.0;
    kernels.f64_operations = kFloatChains * 8 * 2.0;
    return kernels;
  }();
  return kKernels;
}

}  // namespace leq::cpu
