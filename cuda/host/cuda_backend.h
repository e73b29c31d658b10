// The GPU backend: the seam (backend/backend.h) on one stream of one device. Built twice, for CUDA
// devices and for the emulator (docs/cuda.md).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "backend/backend.h"

namespace leq::LEQ_GPU {

// `name` is what users call the device, "cuda:0" or "sim". The device exists. `memory_cap`: the
// most bytes of its memory that may be taken, 0 = what is free.
std::unique_ptr<Backend> make_device_backend(int device, std::string name,
                                             std::size_t memory_cap = 0);

}  // namespace leq::LEQ_GPU
