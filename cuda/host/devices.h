// The devices of a build: those of CUDA and the emulated one. Functions of either kind only exist
// if its library is built (CMake: LEQ_CUDA, LEQ_CUDA_SIM).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"

namespace leq::cuda {
// Returns one line per device: "cuda:0  GPU-8932f937-...  NVIDIA H200, compute capability 9.0,
// 139.8 GB, 139.2 GB free". If there is no device, the only line gives the reason.
std::vector<std::string> list_devices();
// `which` is a number or the start of a UUID. Throws Error if there is no such device (with the
// driver's reason) or if this build has no code for the device.
std::unique_ptr<Backend> make_backend(std::string_view which, const GpuOptions& options);
}  // namespace leq::cuda

namespace leq::sim {
// `threads` is the number of threads that run the blocks of kernels; 0 = one per usable core.
// `memory` is the size of the device's memory; 0 = large.
std::unique_ptr<Backend> make_backend(int threads, std::uint64_t memory, const GpuOptions& options);
}  // namespace leq::sim
