// The loops of fmla that the limits of all levels share.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace leq::cpu {
namespace {

constexpr int kChains = 16;  // four instructions a cycle, four cycles each

float f32_products(std::int64_t rounds) noexcept {
  const float32x4_t half = vdupq_n_f32(0.5f);
  const float32x4_t one = vdupq_n_f32(1.0f);
  float32x4_t sums[kChains];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) sums[i] = vdupq_n_f32(static_cast<float>(i));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (auto& sum : sums) sum = vfmaq_f32(sum, half, one);
  }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sums[0] = vaddq_f32(sums[0], sums[i]);
  return vgetq_lane_f32(sums[0], 0);
}

double f64_products(std::int64_t rounds) noexcept {
  const float64x2_t half = vdupq_n_f64(0.5);
  const float64x2_t one = vdupq_n_f64(1.0);
  float64x2_t sums[kChains];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) sums[i] = vdupq_n_f64(static_cast<double>(i));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (auto& sum : sums) sum = vfmaq_f64(sum, half, one);
  }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sums[0] = vaddq_f64(sums[0], sums[i]);
  return vgetq_lane_f64(sums[0], 0);
}

}  // namespace
}  // namespace leq::cpu
