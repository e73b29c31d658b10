#include "cuda/host/devices.h"
#include "platform/gpu.h"

namespace leq::platform {

std::vector<std::string> cuda_lines() { return cuda::list_devices(); }
std::unique_ptr<Backend> make_cuda(std::string_view which, std::uint64_t memory_cap) {
  return cuda::make_backend(which, memory_cap);
}

}  // namespace leq::platform
