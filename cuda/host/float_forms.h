// Tests whether a device's two float tensor-core instructions (mma, wgmma) give the same bits.
#pragma once

#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU {

// Runs launch_float_forms if the device has wgmma, and waits. Called when a backend is created.
bool finds_equal_forms(int device, rt::Stream& stream);

}  // namespace leq::LEQ_GPU
