// Single numbers of a stored weight on the device: for kernels that do not live from the planes'
// order (embedding, weights for f32 inputs), and one place that says what the planes mean.
#pragma once

#include "cuda/kernels/launch.h"
#include "cuda/layout/layout.h"
#include "cuda/words/ptx.h"

namespace leq::LEQ_GPU {

__device__ __forceinline__ int plane_bits(const std::uint8_t* planes, int bits, std::int64_t row,
                                          std::int64_t column, std::int64_t columns) {
  const std::int64_t at = row * (padded_columns(columns) * bits / 8) + plane_byte(bits, column);
  return planes[at] >> plane_shift(bits, column) & ((1 << bits) - 1);
}

// The code as it counts: signed, zero point subtracted.
__device__ __forceinline__ int code_number(const CodeWeight& w, std::int64_t row,
                                           std::int64_t column, std::int64_t columns) {
  if (w.bits == 8 && w.zeros == nullptr && w.zero == 0) {
    return static_cast<std::int8_t>(w.codes[row * padded_columns(columns) + column]);
  }
  const int low = w.bits == 3 ? 2 : w.bits;
  int code = plane_bits(w.codes, low, row, column, columns);
  if (w.high != nullptr) code |= plane_bits(w.high, 1, row, column, columns) << 2;
  if (w.zeros == nullptr) return code - w.zero;
  const std::int64_t groups = w.group == 0 ? 1 : padded_columns(columns) / w.group;
  return code - w.zeros[row * groups + (w.group == 0 ? 0 : column / w.group)];
}

__device__ __forceinline__ float code_scale(const CodeWeight& w, std::int64_t row,
                                            std::int64_t column, std::int64_t columns) {
  if (w.group == 0) return w.row_scales[row];
  const std::int64_t groups = padded_columns(columns) / w.group;
  return ptx::f16_to_f32(w.group_scales[row * groups + column / w.group]) * w.scale_mul;
}

__device__ __forceinline__ float float_number(const FloatWeight& w, std::int64_t row,
                                              std::int64_t column, std::int64_t columns) {
  const std::int64_t at = row * float_stride(columns) + column;
  if (w.type == FloatType::f32) return static_cast<const float*>(w.values)[at];
  const std::uint16_t half = static_cast<const std::uint16_t*>(w.values)[at];
  return w.type == FloatType::f16 ? ptx::f16_to_f32(half) : ptx::bf16_to_f32(half);
}

}  // namespace leq::LEQ_GPU
