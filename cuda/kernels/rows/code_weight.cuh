// Reads single numbers of a weight on the device. These functions define what codes mean, for
// kernels whose speed does not depend on the layout (embedding, weights for f32 inputs).
#pragma once

#include "cuda/intrinsics/groups.cuh"
#include "cuda/intrinsics/ptx.h"
#include "cuda/kernels/launch.h"
#include "cuda/layout/layout.h"

namespace leq::LEQ_GPU {

// The unsigned code at (row, column), also for 3 bits, which are stored as signed numbers.
__device__ __forceinline__ int stored_code(const CodeWeight& w, std::int64_t row,
                                           std::int64_t column, std::int64_t columns) {
  const std::uint8_t* const codes = w.codes + row * (padded_columns(columns) * w.bits / 8);
  if (w.bits == 3) {
    const auto* const words =
        reinterpret_cast<const std::uint32_t*>(codes + three_bit_byte(column));
    const std::uint32_t quad = three_bit_quad(static_cast<int>(column % 128 / 16),
                                              [&](int chunk) { return words[chunk * 4]; });
    return static_cast<std::int8_t>(quad >> column % 4 * 8) / 32 + 4;
  }
  return codes[code_byte(w.bits, column)] >> code_shift(w.bits, column) & ((1 << w.bits) - 1);
}

__device__ __forceinline__ std::int64_t group_index(const CodeWeight& w, std::int64_t row,
                                                    std::int64_t column, std::int64_t columns) {
  const int shift = group_shift(w.group);
  return row * (padded_columns(columns) >> shift) + (column >> shift);
}

// The signed value of a code: its zero point is subtracted.
__device__ __forceinline__ int code_number(const CodeWeight& w, std::int64_t row,
                                           std::int64_t column, std::int64_t columns) {
  if (w.bits == 8 && w.zeros == nullptr && w.zero == 0) {
    return static_cast<std::int8_t>(w.codes[row * padded_columns(columns) + column]);
  }
  const int code = stored_code(w, row, column, columns);
  if (w.has_table) return static_cast<std::int8_t>(w.table[code / 4] >> code % 4 * 8);
  if (w.zeros == nullptr) return code - w.zero;
  return code - w.zeros[w.group == 0 ? row : group_index(w, row, column, columns)];
}

__device__ __forceinline__ float code_scale(const CodeWeight& w, std::int64_t row,
                                            std::int64_t column, std::int64_t columns) {
  if (w.group == 0) return w.row_scales[row];
  return ptx::f16_to_f32(w.group_scales[group_index(w, row, column, columns)]) * w.scale_mul;
}

__device__ __forceinline__ float float_number(const FloatWeight& w, std::int64_t row,
                                              std::int64_t column, std::int64_t columns) {
  const std::int64_t at = row * float_stride(columns) + column;
  if (w.type == FloatType::f32) return static_cast<const float*>(w.values)[at];
  const std::uint16_t half = static_cast<const std::uint16_t*>(w.values)[at];
  return w.type == FloatType::f16 ? ptx::f16_to_f32(half) : ptx::bf16_to_f32(half);
}

}  // namespace leq::LEQ_GPU
