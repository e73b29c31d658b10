// What a build may lack: the GPU backend and its emulated twin. CMake chooses the files in
// devices/.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace leq::platform {

// Lines for people; never empty: without a GPU the line says why.
std::vector<std::string> cuda_lines();
// Throws Error with advice where there is no such device or no such build.
std::unique_ptr<Backend> make_cuda(int device);

std::vector<std::string> sim_lines();  // empty where the build has none
std::unique_ptr<Backend> make_sim(int threads);

}  // namespace leq::platform
