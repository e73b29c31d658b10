// The devices that a build has, for platform: CUDA's and the emulated one. Each half is there only
// where its library is built (CMake: LEQ_CUDA, LEQ_CUDA_SIM).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace leq::cuda {
// One line for each device, "cuda:0  NVIDIA H200, compute capability 9.0, 139.8 GB".
std::vector<std::string> list_devices();
// Throws Error where there is no such device, with the driver's reason.
std::unique_ptr<Backend> make_backend(int device);
}  // namespace leq::cuda

namespace leq::sim {
// `threads` run the blocks of kernels; 0 = one for each usable core.
std::unique_ptr<Backend> make_backend(int threads);
}  // namespace leq::sim
