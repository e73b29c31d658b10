#include "cuda/host/devices.h"
#include "runtime/devices/devices.h"

namespace leq::devices {

std::vector<std::string> sim_lines() {
  return {"sim  the CUDA kernels on this processor, for tests: slow"};
}
std::unique_ptr<Backend> make_sim(int threads, std::uint64_t memory, const GpuOptions& options) {
  return sim::make_backend(threads, memory, options);
}

}  // namespace leq::devices
