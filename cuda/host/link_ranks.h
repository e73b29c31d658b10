// How ranks on GPUs exchange rows: by pushes where all reach each other's memory, else by NCCL.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "comm/communicator.h"
#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU {

// All ranks call it at the same time. `window`: exchange_window.h, of the same size on all. Throws
// Error where neither way is open.
std::unique_ptr<Communicator> link_ranks(Communicator& ranks, int device, rt::Stream& stream,
                                         std::span<std::byte> window);

}  // namespace leq::LEQ_GPU
