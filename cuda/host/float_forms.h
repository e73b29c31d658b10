// Tests whether a device's two float tensor-core instructions (mma, wgmma) give the same bits.
#pragma once

#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU {

// Runs launch_float_forms and waits for it, if the device has wgmma. A new backend calls this once.
bool finds_equal_forms(int device, rt::Stream& stream);

}  // namespace leq::LEQ_GPU
