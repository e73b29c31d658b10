// Operations on single f32 rows for each instruction set, with bit-identical results: a norm's sums
// have lanes k % 256 with k ascending; then lanes 128, 64, ... 1 apart are added
// (docs/numerics.md). n > 0; pointers need no alignment unless stated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/cpu_features.h"

namespace leq::cpu {

struct RowKernels {
  // x += y
  void (*add)(const float* y, std::int64_t n, float* x) noexcept;
  // x *= y
  void (*multiply)(const float* y, std::int64_t n, float* x) noexcept;
  // out = (x * r) * gain, with r = 1 / sqrt(mean(x^2) + eps); out may be x
  void (*rms_norm)(const float* x, const float* gain, float eps, std::int64_t n,
                   float* out) noexcept;
  // out = ((x - mean) * r) * gain + beta, r from the mean of squared differences; out may be x
  void (*layer_norm)(const float* x, const float* gain, const float* beta, float eps,
                     std::int64_t n, float* out) noexcept;
  // By Activation f: out = f(gate) * up; out may be gate or up
  std::array<void (*)(const float* gate, const float* up, std::int64_t n, float* out) noexcept, 2>
      gated;
  // By Activation f: out = f(x); out may be x
  std::array<void (*)(const float* x, std::int64_t n, float* out) noexcept, 2> activated;
  // x = x * sigmoid(gate), computed with one division: x / (1 + exp(-gate))
  void (*gate)(const float* gate, std::int64_t n, float* x) noexcept;
  // max |x|; NaN or infinity if x contains one
  float (*absmax)(const float* x, std::int64_t n) noexcept;
  // codes[k] = clip(rne(x[k] * inv), -127, 127) + offset for k < n; offset is 0 or 128, x finite.
  // Returns the sum of codes minus offset, because reading codes back would stall on the stores.
  std::int32_t (*quantize)(const float* x, std::int64_t n, float inv, int offset,
                           std::uint8_t* codes) noexcept;
};

// The kernel table of an instruction-set level; the processor must support it.
const RowKernels& row_kernels(Isa isa);

}  // namespace leq::cpu
