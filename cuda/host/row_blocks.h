// Converts blocks of activations in device memory to kernel arguments.
#pragma once

#include "backend/rows.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

// The f32 values of a block alone, without ownership.
Rows plain_rows(const Rows& rows);
FloatRows float_rows(const Rows& rows);
CodeRows code_rows(const Rows& rows);
// The terms of the rows, which are stored in the memory of the codes.
TermRows term_rows(const Rows& rows, TermOrder order);

}  // namespace leq::LEQ_GPU
