// Encodes keys and values; this is the only implementation of the arithmetic of docs/kv-cache.md on
// the device. A scale is rounded up to f16 and a minimum down before codes are computed, so that no
// number has an error above half a step.
#pragma once

#include <cmath>

#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/reduce.cuh"

namespace leq::LEQ_GPU {

inline constexpr float kLargestF16 = 65504.0f;

__device__ __forceinline__ float clamped(float x) {
  return fminf(fmaxf(x, -kLargestF16), kLargestF16);
}

// Returns the largest f16 number that is at most x, or the smallest that is at least x (x >= 0).
__device__ __forceinline__ std::uint16_t half_below(float x) {
  const std::uint16_t nearest = ptx::f32_to_f16(x);
  if (ptx::f16_to_f32(nearest) <= x) return nearest;
  return static_cast<std::uint16_t>((nearest & 0x8000u) != 0 ? nearest + 1 : nearest - 1);
}
__device__ __forceinline__ std::uint16_t half_above(float x) {
  const std::uint16_t nearest = ptx::f32_to_f16(x);
  return static_cast<std::uint16_t>(ptx::f16_to_f32(nearest) >= x ? nearest : nearest + 1);
}

// Returns u = clip(rne((x - m) / s)), where x is already clamped.
__device__ __forceinline__ unsigned encoded(float x, float s, float m, float levels) {
  return static_cast<unsigned>(__float2int_rn(s == 0.0f ? 0.0f : fminf((x - m) / s, levels)));
}

// Returns scale and minimum of numbers that range from `low` to `high`, which are clamped.
struct CodeRange {
  std::uint16_t scale = 0, minimum = 0;

  CodeRange() = default;
  __device__ __forceinline__ CodeRange(float low, float high, float levels)
      : minimum(half_below(low + 0.0f)) {  // -0 becomes +0
    scale = half_above(((high - ptx::f16_to_f32(minimum)) + 0.0f) / levels);
  }
  __device__ __forceinline__ unsigned code(float x, float levels) const {
    return encoded(clamped(x), ptx::f16_to_f32(scale), ptx::f16_to_f32(minimum), levels);
  }
};

// Returns scale and minimum of a warp's numbers, from the range [low, high] of each lane.
__device__ __forceinline__ CodeRange warp_range(float low, float high, float levels) {
  high = warp_max(high);
  low = -warp_max(-low);
  return {low, high, levels};
}

}  // namespace leq::LEQ_GPU
