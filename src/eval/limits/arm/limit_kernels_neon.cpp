// Limits of NEON: int8 products as smlal into 16 bits, f32 as fmla.
#include <arm_neon.h>

#include "eval/limits/arm/limit_floats.h"
#include "eval/limits/limit_kernels.h"

namespace leq::cpu {
namespace {
constexpr std::size_t kReadVector = 16;
#include "eval/limits/limit_read.inc"

std::int32_t int8_products(std::int64_t rounds) noexcept {
  const int8x8_t x = vdup_n_s8(3);
  const int8x8_t y = vdup_n_s8(-5);
  int16x8_t sums[kChains];
#pragma GCC unroll 24
  for (auto& sum : sums) sum = vdupq_n_s16(0);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (auto& sum : sums) {
      // Assembly, because equal products would be computed once.
      asm volatile("smlal %0.8h, %1.8b, %2.8b" : "+w"(sum) : "w"(x), "w"(y));
    }
  }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sums[0] = vaddq_s16(sums[0], sums[i]);
  return vgetq_lane_s16(sums[0], 0);
}

constexpr LimitKernels kKernels = {.read = kRead,
                                   .int8 = int8_products,
                                   .f32 = f32_products,
                                   .f64 = f64_products,
                                   .int8_operations = kChains * 8 * 2.0,
                                   .f32_operations = kChains * 4 * 2.0,
                                   .f64_operations = kChains * 2 * 2.0,
                                   .int8_name = "smlal",
                                   .f32_name = "fmla"};

}  // namespace

const LimitKernels& limit_kernels_neon() { return kKernels; }

}  // namespace leq::cpu
