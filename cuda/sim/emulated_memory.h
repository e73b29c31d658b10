// The memory of the emulated device can be set.
#pragma once

#include <cstddef>

namespace leq::LEQ_GPU::rt {

// Its memory, 64 GiB at first: allocations and regions beyond it are refused.
void set_emulated_memory(std::size_t bytes);

}  // namespace leq::LEQ_GPU::rt
