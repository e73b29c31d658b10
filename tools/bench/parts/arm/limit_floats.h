// The fmla loops, which all levels share.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "eval/limits/limit_chains.h"

namespace leq::cpu {
namespace {

constexpr int kChains = 16;  // hides a latency of 4 cycles at 4 instructions per cycle

float f32_products(std::int64_t rounds) noexcept {
  return multiply_adds<float32x4_t, kChains>(
      rounds,
      [](float32x4_t x, float32x4_t half, float32x4_t one) { return vfmaq_f32(x, half, one); });
}

double f64_products(std::int64_t rounds) noexcept {
  return multiply_adds<float64x2_t, kChains>(
      rounds,
      [](float64x2_t x, float64x2_t half, float64x2_t one) { return vfmaq_f64(x, half, one); });
}

}  // namespace
}  // namespace leq::cpu
