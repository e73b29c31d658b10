#include "cuda/devices.h"
#include "platform/gpu.h"

namespace leq::platform {

std::vector<std::string> cuda_lines() { return cuda::list_devices(); }
std::unique_ptr<Backend> make_cuda(int device) { return cuda::make_backend(device); }

}  // namespace leq::platform
