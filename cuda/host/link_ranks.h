// How ranks on GPUs exchange rows: by pushes where all reach each other's memory, else NCCL.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "comm/communicator.h"
#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU {

// A collective call of all ranks. `window`: exchange_window.h, the same size on all. Throws Error
// where neither transport is possible.
std::unique_ptr<Communicator> link_ranks(Communicator& ranks, int device, rt::Stream& stream,
                                         std::span<std::byte> window);

}  // namespace leq::LEQ_GPU
