// Limits of i8mm: int8 products as smmla; the rest as NEON.
#include <arm_neon.h>

#include "eval/limits/limit_kernels.h"

namespace leq::cpu {
namespace {

constexpr int kChains = 16;

std::int32_t int8_products(std::int64_t rounds) noexcept {
  const int8x16_t x = vdupq_n_s8(3);
  const int8x16_t y = vdupq_n_s8(-5);
  int32x4_t sums[kChains];
#pragma GCC unroll 24
  for (auto& sum : sums) sum = vdupq_n_s32(0);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (auto& sum : sums) {
      // Assembly, so that the loop is sixteen instructions and no others.
      asm volatile("smmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(x), "w"(y));
    }
  }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sums[0] = vaddq_s32(sums[0], sums[i]);
  return vgetq_lane_s32(sums[0], 0);
}

}  // namespace

const LimitKernels& limit_kernels_i8mm() {
  static const LimitKernels kKernels = [] {
    LimitKernels kernels = limit_kernels_dotprod();
    kernels.int8 = int8_products;
    kernels.int8_operations = kChains * 32 * 2.0;
    kernels.int8_name = "smmla";
    return kernels;
  }();
  return kKernels;
}

}  // namespace leq::cpu
