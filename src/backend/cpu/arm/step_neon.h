// Four sums over sixteen codes with baseline instructions. Two products of an int8 code and an
// activation in [-127, 127] add up to at most 2 * 128 * 127 = 32,512, which fits into 16 bits.
#pragma once

#include <arm_neon.h>

namespace leq::cpu {
namespace {

struct Step {
  template <int kQuad>
  static inline __attribute__((always_inline)) int32x4_t add(int32x4_t c, int8x16_t codes,
                                                             int8x16_t x) {
    const int32x4_t quad = vdupq_laneq_s32(vreinterpretq_s32_s8(x), kQuad);
    const int8x16_t inputs = vreinterpretq_s8_s32(quad);
    const int16x8_t low = vmull_s8(vget_low_s8(codes), vget_low_s8(inputs));
    const int16x8_t high = vmull_high_s8(codes, inputs);
    return vpadalq_s16(c, vpaddq_s16(low, high));
  }
};

}  // namespace
}  // namespace leq::cpu
