// Converts the shapes of Gated DeltaNet and of short convolutions to kernel arguments.
#pragma once

#include "backend/operations.h"
#include "cuda/kernels/delta/delta.h"

namespace leq::LEQ_GPU {

// Set all arguments except rows, batch, scratch and fault.
DeltaArguments delta_arguments(const DeltaShape& shape);
ShortConvArguments short_conv_arguments(const ShortConvShape& shape);

}  // namespace leq::LEQ_GPU
