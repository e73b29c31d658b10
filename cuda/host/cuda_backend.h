// The GPU backend implements backend/backend.h on one stream of one device. It is compiled twice,
// for CUDA devices and for the emulator (docs/cuda.md).
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"

namespace leq::LEQ_GPU {

// `name` is the device's name for users, "cuda:0" or "sim". The device must exist.
std::unique_ptr<Backend> make_device_backend(int device, std::string name,
                                             const GpuOptions& options);

}  // namespace leq::LEQ_GPU
