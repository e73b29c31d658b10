// Converts the shape of Gated DeltaNet to kernel arguments.
#pragma once

#include "backend/operations.h"
#include "cuda/kernels/delta/delta.h"

namespace leq::LEQ_GPU {

// Sets all arguments except rows, batch, scratch and fault.
DeltaArguments delta_arguments(const DeltaShape& shape);

}  // namespace leq::LEQ_GPU
