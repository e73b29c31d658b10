// Floats in 128-bit registers. Each file has its own copy, in an unnamed namespace.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "backend/cpu/kernels/lanes.h"

namespace leq::cpu {
namespace {

struct Floats128 {
  using Floats = float32x4_t;
  using Mask = std::int64_t;  // the number of valid lanes
  static constexpr int kLanes = 4;
  static constexpr bool kManyRegisters = true;  // 32
  static constexpr int kParts = 4;  // registers of sixteen lanes

  static Mask first_lanes(std::int64_t n) { return n < kLanes ? n : kLanes; }
  static Floats load(const float* from) { return vld1q_f32(from); }
  static Floats load(const std::uint16_t* halves) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(halves)));
  }
  static Floats load(const std::uint8_t* codes) {
    std::uint32_t four;
    __builtin_memcpy(&four, codes, sizeof four);
    const uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)));
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide)));
  }
  static Floats load(const F16* x) { return load(&x->bits); }
  static Floats load(const Bf16* x) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(&x->bits), 16));
  }
  static Floats load(const float* from, Mask count) {
    if (count == kLanes) return load(from);
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
  // x in the lanes below the count, +0 in the others.
  static Floats keep(Floats x, Mask count) {
    if (count == kLanes) return x;
    float four[kLanes];
    vst1q_f32(four, x);
    return load(four, count);
  }
  static Floats repeat(float x) { return vdupq_n_f32(x); }
  static Floats add(Floats a, Floats b) { return vaddq_f32(a, b); }
  static Floats mul(Floats a, Floats b) { return vmulq_f32(a, b); }
  static Floats fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
  static Floats fnma(Floats a, Floats b, Floats c) { return vfmsq_f32(c, a, b); }
  static Floats round(Floats x) { return vrndnq_f32(x); }  // ties to even
  // p * 2^n
  static Floats times_power(Floats p, Floats n) {
    const int32x4_t exponent = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
    return p * vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23));
  }
  // y, or +0 where x is below the limit.
  static Floats zero_below(Floats x, float limit, Floats y) {
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(y), vcltq_f32(x, repeat(limit))));
  }
  static Floats infinite_above(Floats x, float limit, Floats y) {
    return vbslq_f32(vcgtq_f32(x, repeat(limit)), repeat(__builtin_inff()), y);
  }
  static Floats silu(Floats c) { return times_sigmoid<Floats128>(c, c); }
  // Adds the lanes of kParts registers in the fixed order: 8 apart, then 4, 2 and 1.
  static float total(const Floats (&sums)[kParts]) {
    const float32x4_t four = vaddq_f32(vaddq_f32(sums[0], sums[2]), vaddq_f32(sums[1], sums[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }
};

}  // namespace
}  // namespace leq::cpu
