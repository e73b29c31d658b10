// What the emulator claims to be: tests set another architecture between launches.
#pragma once

#include "cuda/rt.h"

namespace leq::LEQ_GPU::rt {

DeviceInfo& emulated_device();

}  // namespace leq::LEQ_GPU::rt
