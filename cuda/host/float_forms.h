// Whether a device's two ways to multiply floats on tensor cores give the same bits.
#pragma once

#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU {

// Runs launch_float_forms where there is wgmma, and waits for it: when a backend begins.
bool finds_equal_forms(int device, rt::Stream& stream);

}  // namespace leq::LEQ_GPU
