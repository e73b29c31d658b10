// Properties of the emulated device, and failures that tests can request.
#pragma once

#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU::rt {

// Returns the device's properties; tests may set another architecture between launches.
DeviceInfo& emulated_device();
// Sets the size of the device's memory, initially 64 GiB. Larger allocations and regions fail.
void set_emulated_memory(std::size_t bytes);
// Makes the next `count` recordings fail when they end, as a driver may do.
void fail_captures(int count);
// Makes one launch (of a kernel or of a replayed recording) fail after `others` more launches.
void fail_launch(int others);

}  // namespace leq::LEQ_GPU::rt
