// Gated DeltaNet with 512-bit registers.
#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/delta/delta_kernel_tables.h"
#include "backend/cpu/delta/delta_lanes.h"
#include "backend/cpu/rows/x86/exp_avx512.h"

namespace leq::cpu {
namespace {

struct Register512 {
  using Floats = __m512;
  using Mask = __mmask16;
  static constexpr int kLanes = 16;
  static constexpr bool kManyRegisters = true;  // room for the sums of two tokens

  // All ones in the lanes below n.
  static Mask first_lanes(std::int64_t n) {
    return static_cast<Mask>(n >= kLanes ? 0xffffu : (1u << n) - 1u);
  }
  static Floats load(const float* from) { return _mm512_loadu_ps(from); }
  static Floats load(const float* from, Mask mask) { return _mm512_maskz_loadu_ps(mask, from); }
  static void store(float* to, Floats x) { _mm512_storeu_ps(to, x); }
  static void store(float* to, Floats x, Mask mask) { _mm512_mask_storeu_ps(to, mask, x); }
  static Floats repeat(float x) { return _mm512_set1_ps(x); }
  static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats fnma(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }
  // c / (1 + exp(-c))
  static Floats silu(Floats c) {
    const __m512 negative = _mm512_xor_ps(c, _mm512_set1_ps(-0.0f));
    return _mm512_div_ps(c, _mm512_add_ps(_mm512_set1_ps(1.0f), exp_lanes(negative)));
  }
};

}  // namespace

const DeltaKernels& delta_kernels_avx512() { return kDeltaKernels<Register512>; }

}  // namespace leq::cpu
