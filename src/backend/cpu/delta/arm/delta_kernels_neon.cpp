// Gated DeltaNet with 128-bit registers.
#include <arm_neon.h>

#include <cstdint>

#include "backend/cpu/arm/lanes_neon.h"
#include "backend/cpu/delta/delta_kernel_tables.h"
#include "backend/cpu/delta/delta_lanes.h"

namespace leq::cpu {
namespace {

struct Register128 {
  using Floats = float32x4_t;
  using Mask = std::int64_t;  // lanes that are there
  static constexpr int kLanes = 4;
  static constexpr bool kManyRegisters = true;  // room for the sums of two tokens

  static Mask first_lanes(std::int64_t n) { return n < kLanes ? n : kLanes; }
  static Floats load(const float* from) { return vld1q_f32(from); }
  static Floats load(const float* from, Mask count) {
    float four[kLanes] = {};
    for (Mask i = 0; i < count; ++i) four[i] = from[i];
    return vld1q_f32(four);
  }
  static void store(float* to, Floats x) { vst1q_f32(to, x); }
  static void store(float* to, Floats x, Mask count) {
    float four[kLanes];
    vst1q_f32(four, x);
    for (Mask i = 0; i < count; ++i) to[i] = four[i];
  }
  static Floats repeat(float x) { return vdupq_n_f32(x); }
  static Floats add(Floats a, Floats b) { return vaddq_f32(a, b); }
  static Floats mul(Floats a, Floats b) { return vmulq_f32(a, b); }
  static Floats fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
  static Floats fnma(Floats a, Floats b, Floats c) { return vfmsq_f32(c, a, b); }
  // c / (1 + exp(-c))
  static Floats silu(Floats c) {
    return vdivq_f32(c, vaddq_f32(vdupq_n_f32(1.0f), exp_lanes(vnegq_f32(c))));
  }
};

}  // namespace

const DeltaKernels& delta_kernels_neon() { return kDeltaKernels<Register128>; }

}  // namespace leq::cpu
