// The optional backends, CUDA and its emulation. CMake chooses the implementation in
// devices/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/gpu_options.h"

namespace leq::platform {

// Lines for people; never empty: without a GPU the line says why.
std::vector<std::string> cuda_lines();
// `which`: a number, or the start of a UUID. Throws Error with advice where there is no such device
// or no such build.
std::unique_ptr<Backend> make_cuda(std::string_view which, const GpuOptions& options);

std::vector<std::string> sim_lines();  // empty where the build has none
// `memory`: of the emulated device, 0 = plenty.
std::unique_ptr<Backend> make_sim(int threads, std::uint64_t memory, const GpuOptions& options);

}  // namespace leq::platform
