#include "cuda/host/devices.h"
#include "runtime/devices/devices.h"

namespace leq::devices {

std::vector<std::string> cuda_lines() { return cuda::list_devices(); }
std::unique_ptr<Backend> make_cuda(std::string_view which, const GpuOptions& options) {
  return cuda::make_backend(which, options);
}

}  // namespace leq::devices
