// The engine's exp and the fixed order of lane sums with 128-bit registers (base/float_math.h,
// docs/numerics.md). Everything is static.
#pragma once

#include <arm_neon.h>

#include "base/float_math.h"

namespace leq::cpu {

// leq_exp of four lanes, bit for bit.
[[maybe_unused]] static inline float32x4_t exp_lanes(float32x4_t x) {
  const float32x4_t n = vrndnq_f32(vmulq_n_f32(x, kLog2E));
  float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(kLn2High));
  r = vfmsq_f32(r, n, vdupq_n_f32(kLn2Low));
  float32x4_t p = vdupq_n_f32(kExp6);
  p = vfmaq_f32(vdupq_n_f32(kExp5), p, r);
  p = vfmaq_f32(vdupq_n_f32(kExp4), p, r);
  p = vfmaq_f32(vdupq_n_f32(kExp3), p, r);
  p = vfmaq_f32(vdupq_n_f32(kExp2), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
  const uint32x4_t exponent = vreinterpretq_u32_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)));
  const float32x4_t y = vmulq_f32(p, vreinterpretq_f32_u32(vshlq_n_u32(exponent, 23)));
  const uint32x4_t over = vcgtq_f32(x, vdupq_n_f32(kExpHighest));
  const uint32x4_t below = vcltq_f32(x, vdupq_n_f32(kExpLowest));
  const float32x4_t upper = vbslq_f32(over, vdupq_n_f32(__builtin_inff()), y);
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(upper), below));
}

// Sixteen lanes in four registers: +8, +4, +2, +1.
[[maybe_unused]] static inline float add_lanes(const float32x4_t (&sums)[4]) {
  const float32x4_t four = vaddq_f32(vaddq_f32(sums[0], sums[2]), vaddq_f32(sums[1], sums[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

}  // namespace leq::cpu
