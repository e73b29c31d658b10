// The optional backends, CUDA and its emulation. For each, CMake compiles one file of this folder:
// the backend, or a refusal (cuda/CMakeLists.txt).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"

namespace leq::devices {

// Human-readable lines, never empty: without a GPU, a line gives the reason.
std::vector<std::string> cuda_lines();
// `which`: a number, or the start of a UUID. Throws Error with a remedy if there is no such device
// or if this build does not support it.
std::unique_ptr<Backend> make_cuda(std::string_view which, const GpuOptions& options);

std::vector<std::string> sim_lines();  // empty if the build has no emulation
// `memory`: memory size of the emulated device; 0: unlimited.
std::unique_ptr<Backend> make_sim(int threads, std::uint64_t memory, const GpuOptions& options);

}  // namespace leq::devices
