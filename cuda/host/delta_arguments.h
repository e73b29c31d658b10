// Gated DeltaNet's shape as its kernels want to see it.
#pragma once

#include "backend/decoder_parts.h"
#include "cuda/kernels/delta/delta.h"

namespace leq::LEQ_GPU {

// All but rows, batch, scratch and fault.
DeltaArguments delta_arguments(const DeltaShape& shape);

}  // namespace leq::LEQ_GPU
