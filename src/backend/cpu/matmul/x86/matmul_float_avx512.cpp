// Float matmuls with 512-bit registers.
#include "backend/cpu/matmul/float_lanes.h"
#include "backend/cpu/rows/x86/floats_avx512.h"

namespace leq::cpu {
namespace {

struct Lanes : Floats512 {
  static constexpr int kParts = 1, kTokens = 6, kOutputs = 4, kOutputsAlone = 4, kFetch = 1024;

  using Floats512::load;
  static Floats load(const F16* weights) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights)));
  }
  static Floats load(const Bf16* weights) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static float total(const Floats (&c)[kParts]) { return add_lanes(c[0]); }
};

}  // namespace

void f32_avx512(const FloatBlock& block) noexcept { run_floats<Lanes, float>(block); }
void f16_avx512(const FloatBlock& block) noexcept { run_floats<Lanes, F16>(block); }
void bf16_avx512(const FloatBlock& block) noexcept { run_floats<Lanes, Bf16>(block); }

}  // namespace leq::cpu
