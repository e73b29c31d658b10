// How a block of activations lies in device memory (layout.h), and as kernels want to see it.
#pragma once

#include "backend/backend.h"
#include "cuda/launch.h"

namespace leq::LEQ_GPU {

struct RowBytes {
  std::int64_t value_stride = 0, code_stride = 0, scale_stride = 0, sum_stride = 0;
  std::size_t codes_at = 0, scales_at = 0, sums_at = 0;  // values lie first
  std::size_t bytes = 0;
};
RowBytes row_bytes(std::int64_t capacity, std::int64_t width, const RowsFormat& format);
Rows make_rows(std::int64_t capacity, std::int64_t width, const RowsFormat& format, Buffer memory);

// What the matmuls want to read: values are always kept (kernels finish rows in f32 before they
// become codes or pieces), codes signed, sums of codes where the weights are unsigned, pieces where
// tensor cores take f32 inputs. Throws Error where the linear's weights want different formats.
RowsFormat rows_format(const Linear& consumer);

FloatRows float_rows(const Rows& rows);
CodeRows code_rows(const Rows& rows);
// The rows' pieces lie where codes would.
PieceRows piece_rows(const Rows& rows);

}  // namespace leq::LEQ_GPU
