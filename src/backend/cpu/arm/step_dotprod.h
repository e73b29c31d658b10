// Four sums over sixteen codes with sdot. Only for files that are compiled for dotprod.
#pragma once

#include <arm_neon.h>

namespace leq::cpu {
namespace {

struct Step {
  template <int kQuad>
  static inline __attribute__((always_inline)) int32x4_t add(int32x4_t c, int8x16_t codes,
                                                             int8x16_t x) {
    return vdotq_laneq_s32(c, codes, x, kQuad);
  }
};

}  // namespace
}  // namespace leq::cpu
