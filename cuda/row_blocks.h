// How a block of activations lies in device memory (layout.h), and as kernels want to see it.
#pragma once

#include "backend/rows_layout.h"
#include "cuda/launch.h"

namespace leq::LEQ_GPU {

RowsLayout rows_layout(std::int64_t capacity, std::int64_t width, const RowsFormat& format);

FloatRows float_rows(const Rows& rows);
CodeRows code_rows(const Rows& rows);

}  // namespace leq::LEQ_GPU
