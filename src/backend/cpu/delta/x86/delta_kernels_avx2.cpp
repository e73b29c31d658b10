// Gated DeltaNet with 256-bit registers.
#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/delta/delta_kernel_tables.h"
#include "backend/cpu/delta/delta_lanes.h"
#include "backend/cpu/rows/x86/exp_avx2.h"

namespace leq::cpu {
namespace {

struct Register256 {
  using Floats = __m256;
  using Mask = __m256i;
  static constexpr int kLanes = 8;
  static constexpr bool kManyRegisters = false;  // room for the sums of two tokens

  // All ones in the lanes below n.
  static Mask first_lanes(std::int64_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n < kLanes ? n : kLanes)), lane);
  }
  static Floats load(const float* from) { return _mm256_loadu_ps(from); }
  static Floats load(const float* from, Mask mask) { return _mm256_maskload_ps(from, mask); }
  static void store(float* to, Floats x) { _mm256_storeu_ps(to, x); }
  static void store(float* to, Floats x, Mask mask) { _mm256_maskstore_ps(to, mask, x); }
  static Floats repeat(float x) { return _mm256_set1_ps(x); }
  static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static Floats fnma(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(a, b, c); }
  // c / (1 + exp(-c))
  static Floats silu(Floats c) {
    const __m256 negative = _mm256_xor_ps(c, _mm256_set1_ps(-0.0f));
    return _mm256_div_ps(c, _mm256_add_ps(_mm256_set1_ps(1.0f), exp_lanes(negative)));
  }
};

}  // namespace

const DeltaKernels& delta_kernels_avx2() { return kDeltaKernels<Register256>; }

}  // namespace leq::cpu
