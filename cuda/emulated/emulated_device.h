// Properties of the emulated device, and failures that tests can request.
#pragma once

#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU::rt {

// Tests may set another architecture between launches.
DeviceInfo& emulated_device();
// Size of its memory, initially 64 GiB. Allocations and regions beyond it fail.
void set_emulated_memory(std::size_t bytes);
// Makes the next `count` recordings fail when they end, as a driver may do.
void fail_captures(int count);
// Makes one launch fail after `others` more launches, either of a kernel or of a recording.
void fail_launch(int others);

}  // namespace leq::LEQ_GPU::rt
