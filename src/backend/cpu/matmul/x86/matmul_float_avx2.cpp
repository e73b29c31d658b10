// Float matmuls with 256-bit registers; two of them hold sixteen lanes.
#include "backend/cpu/matmul/float_lanes.h"
#include "backend/cpu/rows/x86/floats_avx2.h"

namespace leq::cpu {
namespace {

// 12 accumulators for several tokens; 8 for one, whose weights are read as four streams.
struct Lanes : Floats256 {
  static constexpr int kParts = 2, kTokens = 3, kOutputs = 2, kOutputsAlone = 4, kFetch = 0;

  using Floats256::load;
  static Floats load(const F16* weights) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weights)));
  }
  static Floats load(const Bf16* weights) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static float total(const Floats (&c)[kParts]) { return add_lanes(c[0], c[1]); }
};

}  // namespace

void f32_avx2(const FloatBlock& block) noexcept { run_floats<Lanes, float>(block); }
void f16_avx2(const FloatBlock& block) noexcept { run_floats<Lanes, F16>(block); }
void bf16_avx2(const FloatBlock& block) noexcept { run_floats<Lanes, Bf16>(block); }

}  // namespace leq::cpu
