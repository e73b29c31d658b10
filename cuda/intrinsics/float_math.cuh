// The engine's exp, silu, gelu and cap of logits on the device, in the order of operations of
// base/float_math.h, so that bits equal the CPU's (-fmad=false; division and square root round to
// nearest).
#pragma once

#include "base/float_math.h"
#include "cuda/intrinsics/simt.h"

namespace leq::LEQ_GPU {

__device__ __forceinline__ float device_exp(float x) {
  constexpr float kToInteger = 0x1.8p23f;  // adding this rounds to an integer, ties to even
  const float n = (x * kLog2E + kToInteger) - kToInteger;
  float r = fmaf(-n, kLn2High, x);
  r = fmaf(-n, kLn2Low, r);
  float p = kExp6;
  p = fmaf(p, r, kExp5);
  p = fmaf(p, r, kExp4);
  p = fmaf(p, r, kExp3);
  p = fmaf(p, r, kExp2);
  p = fmaf(p, r, 1.0f);
  p = fmaf(p, r, 1.0f);
  const bool inside = x >= kExpLowest && x <= kExpHighest;
  const int exponent = inside ? static_cast<int>(n) + 127 : 127;
  const float y = p * __uint_as_float(static_cast<unsigned>(exponent) << 23);
  if (inside) return y;
  if (x < kExpLowest) return 0.0f;
  return x > kExpHighest ? __uint_as_float(0x7f800000u) : x + x;
}

__device__ __forceinline__ float device_silu(float x) { return x / (1.0f + device_exp(-x)); }

__device__ __forceinline__ float device_gelu(float x) {
  const float u = kGeluScale * fmaf(kGeluCubic * (x * x), x, x);
  return x / (1.0f + device_exp(-2.0f * u));
}

// base/float_math.h: clamped_swiglu
__device__ __forceinline__ float device_clamped_swiglu(float gate, float up) {
  constexpr float kLimit = kClampedSwigluLimit;
  const float g = gate > kLimit ? kLimit : gate;
  const float above = up < -kLimit ? -kLimit : up;
  const float u = above > kLimit ? kLimit : above;
  return g / (1.0f + device_exp(-(kClampedSwigluScale * g))) * (u + 1.0f);
}

// cap * tanh(scale * x / cap)
__device__ __forceinline__ float device_capped(float x, float scale, float cap) {
  const float size = fabsf(x);
  const float t = device_exp(-2.0f * (size * scale / cap));
  if (!(size <= 3.402823466e38f)) return x;  // infinity and NaN
  return copysignf(cap * (1.0f - t) / (1.0f + t), x);
}

}  // namespace leq::LEQ_GPU
