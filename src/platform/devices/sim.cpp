#include "cuda/host/devices.h"
#include "platform/gpu.h"

namespace leq::platform {

std::vector<std::string> sim_lines() {
  return {"sim  the CUDA kernels on this processor, for tests: slow"};
}
std::unique_ptr<Backend> make_sim(int threads, std::uint64_t memory, std::uint64_t memory_cap) {
  return sim::make_backend(threads, memory, memory_cap);
}

}  // namespace leq::platform
