// What the emulator claims to be.
#pragma once

#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU::rt {

// Tests set another architecture between launches.
DeviceInfo& emulated_device();
// Its memory, 64 GiB at first: allocations and regions beyond it are refused.
void set_emulated_memory(std::size_t bytes);

}  // namespace leq::LEQ_GPU::rt
