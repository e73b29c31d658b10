// Limits of AVX-VNNI: int8 products as vpdpbusd, 256 bits wide; the rest as AVX2.
#include <immintrin.h>

#include "eval/limits/limit_kernels.h"

namespace leq::cpu {
namespace {

constexpr int kChains = 12;  // two instructions a cycle, four or five cycles each

std::int32_t int8_products(std::int64_t rounds) noexcept {
  const __m256i x = _mm256_set1_epi8(3);
  const __m256i y = _mm256_set1_epi8(-5);
  __m256i sums[kChains];
#pragma GCC unroll 24
  for (auto& sum : sums) sum = _mm256_setzero_si256();
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      asm volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y));
    }
  }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sums[0] = _mm256_add_epi32(sums[0], sums[i]);
  return _mm256_extract_epi32(sums[0], 0);
}

}  // namespace

const LimitKernels& limit_kernels_avxvnni() {
  static const LimitKernels kKernels = [] {
    LimitKernels kernels = limit_kernels_avx2();
    kernels.int8 = int8_products;
    kernels.int8_operations = kChains * 32 * 2.0;
    kernels.int8_name = "vpdpbusd (256 bits)";
    kernels.codes = {};
    return kernels;
  }();
  return kKernels;
}

}  // namespace leq::cpu
