// How a block of activations lies in device memory (layout.h), and as kernels want to see it.
#pragma once

#include "backend/rows_layout.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

RowsLayout rows_layout(std::int64_t capacity, std::int64_t width, const RowsFormat& format);

// rows_format() and the pieces where tensor cores take f32 inputs; values are always kept (kernels
// finish rows in f32 before they become codes or pieces), codes signed.
RowsFormat input_format(const Linear& consumer);

FloatRows float_rows(const Rows& rows);
CodeRows code_rows(const Rows& rows);
// The rows' pieces lie where codes would.
PieceRows piece_rows(const Rows& rows);

}  // namespace leq::LEQ_GPU
