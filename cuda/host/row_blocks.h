// Blocks of activations in device memory as kernel arguments.
#pragma once

#include "backend/rows.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

// Only the f32 values of a block, without an owner.
Rows plain_rows(const Rows& rows);
FloatRows float_rows(const Rows& rows);
CodeRows code_rows(const Rows& rows);
// The rows' terms, stored in the place of codes.
TermRows term_rows(const Rows& rows, TermOrder order);

}  // namespace leq::LEQ_GPU
