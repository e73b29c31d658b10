// Limits of dotprod: int8 products as sdot, f32 as fmla.
#include <arm_neon.h>

#include "eval/limits/arm/limit_floats.h"
#include "eval/limits/limit_kernels.h"

namespace leq::cpu {
namespace {
constexpr std::size_t kReadVector = 16;
#include "eval/limits/limit_read.inc"

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
      asm volatile("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(x), "w"(y));
    }
  }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sums[0] = vaddq_s32(sums[0], sums[i]);
  return vgetq_lane_s32(sums[0], 0);
}

constexpr LimitKernels kKernels = {.read = kRead,
                                   .int8 = int8_products,
                                   .f32 = f32_products,
                                   .f64 = f64_products,
                                   .int8_operations = kChains * 16 * 2.0,
                                   .f32_operations = kChains * 4 * 2.0,
                                   .f64_operations = kChains * 2 * 2.0,
                                   .int8_name = "sdot",
                                   .f32_name = "fmla"};

}  // namespace

const LimitKernels& limit_kernels_dotprod() { return kKernels; }

}  // namespace leq::cpu
