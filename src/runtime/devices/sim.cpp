#include "cuda/host/devices.h"
#include "platform/gpu.h"

namespace leq::platform {

std::vector<std::string> sim_lines() {
  return {"sim  the CUDA kernels on this processor, for tests: slow"};
}
std::unique_ptr<Backend> make_sim(int threads, std::uint64_t memory, const GpuOptions& options) {
  return sim::make_backend(threads, memory, options);
}

}  // namespace leq::platform
