// exp, silu and gelu of base/float_math.h on the device: the same operations in the same order, so
// the same bits.
#pragma once

#include "base/float_math.h"
#include "cuda/simt.h"

namespace leq::LEQ_GPU {

__device__ __forceinline__ float device_exp(float x) {
  if (x < kExpLowest) return 0.0f;
  if (x > kExpHighest) return __int_as_float(0x7f800000);
  if (x != x) return x + x;
  const float n = nearbyintf(x * kLog2E);
  float r = fmaf(-n, kLn2High, x);
  r = fmaf(-n, kLn2Low, r);
  float p = kExp6;
  p = fmaf(p, r, kExp5);
  p = fmaf(p, r, kExp4);
  p = fmaf(p, r, kExp3);
  p = fmaf(p, r, kExp2);
  p = fmaf(p, r, 1.0f);
  p = fmaf(p, r, 1.0f);
  return p * __int_as_float((static_cast<int>(n) + 127) << 23);
}

__device__ __forceinline__ float device_silu(float x) { return x / (1.0f + device_exp(-x)); }

__device__ __forceinline__ float device_gelu(float x) {
  const float u = kGeluScale * fmaf(kGeluCubic * (x * x), x, x);
  return x / (1.0f + device_exp(-2.0f * u));
}

}  // namespace leq::LEQ_GPU
