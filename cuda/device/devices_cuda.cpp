#include "base/error.h"
#include "base/text.h"
#include "cuda/cuda_backend.h"
#include "cuda/devices.h"
#include "cuda/rt.h"

namespace leq::cuda {

std::vector<std::string> list_devices() {
  std::vector<std::string> lines;
  for (const rt::DeviceInfo& device : rt::devices()) {
    lines.push_back("cuda:" + std::to_string(lines.size()) + "  " + device.name +
                    ", compute capability " + std::to_string(device.major) + "." +
                    std::to_string(device.minor) + ", " + human_bytes(device.memory_bytes));
  }
  return lines;
}

std::unique_ptr<Backend> make_backend(int device) {
  const auto count = static_cast<int>(rt::devices().size());
  require(count > 0, "-dev cuda:", device, ": no CUDA device: ", rt::why_no_device(),
          "; use -dev cpu");
  require(device >= 0 && device < count, "-dev cuda:", device, ": expected 0 to ", count - 1,
          "; --list-devices shows them");
  return make_device_backend(device, "cuda:" + std::to_string(device));
}

}  // namespace leq::cuda
