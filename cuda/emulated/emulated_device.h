// What the emulator claims to be.
#pragma once

#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU::rt {

// Tests set another architecture between launches.
DeviceInfo& emulated_device();
// Its memory, 64 GiB at first: allocations and regions beyond it are refused.
void set_emulated_memory(std::size_t bytes);
// So many of the next recordings fail where they end, as a driver may have them.
void fail_captures(int count);
// The launch after `others` more fails, of a kernel or of what was recorded, and none after it.
void fail_launch(int others);

}  // namespace leq::LEQ_GPU::rt
