// Converts blocks of activations in device memory to kernel arguments.
#pragma once

#include "backend/rows.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

// Returns the f32 values of a block without its codes; the result does not own memory.
Rows plain_rows(const Rows& rows);
FloatRows float_rows(const Rows& rows);
CodeRows code_rows(const Rows& rows);
// Returns the terms (f16 or bf16 parts) of the rows, which use the memory of the codes.
TermRows term_rows(const Rows& rows);

}  // namespace leq::LEQ_GPU
