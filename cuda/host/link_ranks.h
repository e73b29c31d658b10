// Selects how ranks on GPUs exchange rows: pushes if all can access each other's memory, or NCCL.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "cuda/rt/rt.h"
#include "ranks/communicator.h"

namespace leq::LEQ_GPU {

// All ranks must call this together. `window` (see exchange_window.h) has the same size on all
// ranks. Throws Error if neither transport is possible.
std::unique_ptr<Communicator> link_ranks(Communicator& ranks, int device, rt::Stream& stream,
                                         std::span<std::byte> window);

}  // namespace leq::LEQ_GPU
