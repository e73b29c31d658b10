// Float matmuls with 128-bit registers; four of them hold sixteen lanes.
#include "backend/cpu/matmul/float_lanes.h"
#include "backend/cpu/rows/arm/floats_neon.h"

namespace leq::cpu {
namespace {

// 24 accumulators for several tokens; 16 for one, whose weights are read as four streams.
struct Lanes : Floats128 {
  static constexpr int kParts = 4, kTokens = 3, kOutputs = 2, kOutputsAlone = 4, kFetch = 0;

  using Floats128::load;
  static Floats load(const F16* weights) {
    const uint16x4_t bits = vld1_u16(reinterpret_cast<const std::uint16_t*>(weights));
    return vcvt_f32_f16(vreinterpret_f16_u16(bits));
  }
  static Floats load(const Bf16* weights) {
    const uint16x4_t bits = vld1_u16(reinterpret_cast<const std::uint16_t*>(weights));
    return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
  }
  static float total(const Floats (&c)[kParts]) { return add_lanes(c); }
};

}  // namespace

void f32_neon(const FloatBlock& block) noexcept { run_floats<Lanes, float>(block); }
void f16_neon(const FloatBlock& block) noexcept { run_floats<Lanes, F16>(block); }
void bf16_neon(const FloatBlock& block) noexcept { run_floats<Lanes, Bf16>(block); }

}  // namespace leq::cpu
