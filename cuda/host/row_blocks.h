// Converts blocks of activations in device memory to kernel arguments.
#pragma once

#include "backend/rows.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

inline FloatRows float_rows(const Rows& rows) { return {rows.values, rows.value_stride}; }

inline CodeRows code_rows(const Rows& rows) {
  return {reinterpret_cast<std::int8_t*>(rows.codes),
          rows.scales,
          rows.sums,
          rows.code_stride,
          rows.scale_stride,
          rows.sum_stride,
          scale_columns(rows.format.act),
          rows.format.sum_group};
}

// Returns the terms (f16 or bf16 parts) of the rows, which use the memory of the codes.
inline TermRows term_rows(const Rows& rows) {
  return {reinterpret_cast<std::uint16_t*>(rows.format.terms > 0 ? rows.codes : nullptr),
          rows.scales, rows.code_stride / std::int64_t{sizeof(std::uint16_t)}, rows.format.terms};
}

// Returns the f32 values of a block without its codes; the result does not own memory.
inline Rows plain_rows(const Rows& rows) {
  Rows plain;
  plain.capacity = rows.capacity;
  plain.width = rows.width;
  plain.values = rows.values;
  plain.value_stride = rows.value_stride;
  return plain;
}

}  // namespace leq::LEQ_GPU
