// Blocks of activations in device memory as kernels want to see them.
#pragma once

#include "backend/rows.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

// The f32 values of a block alone, without an owner.
Rows plain_rows(const Rows& rows);
FloatRows float_rows(const Rows& rows);
CodeRows code_rows(const Rows& rows);
// The rows' terms lie where codes would.
TermRows term_rows(const Rows& rows, TermOrder order);

}  // namespace leq::LEQ_GPU
