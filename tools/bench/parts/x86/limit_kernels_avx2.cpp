// Limits of AVX2: int8 products by vpmaddwd + vpaddd on widened codes, products of codes of at most
// 4 bits by vpmaddubsw, f32 by vfmadd.
#include <immintrin.h>

#include "eval/limits/x86/limit_codes.h"

namespace leq::cpu {
namespace {
constexpr std::size_t kReadVector = 32;
#include "eval/limits/limit_read.inc"

constexpr int kChains = 12;  // hides a latency of 4 or 5 cycles at 2 instructions per cycle

float f32_products(std::int64_t rounds) noexcept {
  return multiply_adds<__m256, kChains>(
      rounds, [](__m256 x, __m256 half, __m256 one) { return _mm256_fmadd_ps(x, half, one); });
}

double f64_products(std::int64_t rounds) noexcept {
  return multiply_adds<__m256d, kChains>(
      rounds, [](__m256d x, __m256d half, __m256d one) { return _mm256_fmadd_pd(x, half, one); });
}

constexpr LimitKernels make_kernels() {
  LimitKernels kernels = {.read = kRead,
                          .int8 = nullptr,
                          .f32 = f32_products,
                          .f64 = f64_products,
                          .f32_operations = kChains * 8 * 2.0,
                          .f64_operations = kChains * 4 * 2.0,
                          .int8_name = "vpmaddwd",
                          .codes_name = "vpmaddubsw",
                          .f32_name = "vfmadd"};
  set_products<32, kChains, 6>(kernels);
  return kernels;
}
constexpr LimitKernels kKernels = make_kernels();

}  // namespace

const LimitKernels& limit_kernels_avx2() { return kKernels; }

}  // namespace leq::cpu
