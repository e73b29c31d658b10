#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/device_list.h"
#include "cuda/host/devices.h"
#include "cuda/rt/rt.h"

namespace leq::cuda {
namespace {

// Returns nullopt if another program has exclusive use of the device.
std::optional<std::size_t> free_bytes(int device) {
  try {
    return rt::memory_of(device).free_bytes;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<std::string> list_devices() {
  std::vector<std::string> lines;
  for (const rt::DeviceInfo& device : rt::devices()) {
    const std::size_t index = lines.size();
    lines.push_back(device_line(index, device, free_bytes(static_cast<int>(index))));
  }
  if (lines.empty()) lines.push_back("cuda  no device: " + rt::why_no_device());
  return lines;
}

std::unique_ptr<Backend> make_backend(std::string_view which, const GpuOptions& options) {
  // With several ranks, loading a kernel at its first launch would wait for a kernel that waits for
  // a peer. This is set now, because the driver reads the variable once, at its first call.
  if (options.ranks > 1) ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  const std::vector<rt::DeviceInfo> devices = rt::devices();
  require(!devices.empty(), ErrorKind::no_device, Setting{"device"}, " cuda:", which,
          ": no CUDA device: ", rt::why_no_device(), "; use ", Setting{"device"}, " cpu");
  const int index = choose_device(which, devices) + options.rank;
  require(index < static_cast<int>(devices.size()), ErrorKind::no_device, Setting{"ranks"}, " ",
          options.ranks, ": rank ", options.rank, " needs GPU ", index, ", this machine has ",
          devices.size(), "; use fewer, or ", Setting{"device"}, " cuda:0");
  const rt::DeviceInfo& device = devices[static_cast<std::size_t>(index)];
  const CodeFor code = code_for(LEQ_CUDA_IMAGES, device.major, device.minor);
  require(code != CodeFor::nothing, ErrorKind::no_device, Setting{"device"}, " cuda:", which, ": ",
          device.name, " has compute capability ", device.major, ".", device.minor,
          ", this build has code for ", LEQ_CUDA_IMAGES, "; configure it with ",
          "-DLEQ_CUDA_ARCHITECTURES=", device.major, device.minor, device.major == 9 ? "a" : "",
          "-real (8.0 is the oldest)");
  if (code == CodeFor::translation) {
    std::fprintf(stderr,
                 "cuda:%d: this build has no machine code for compute capability %d.%d; the driver "
                 "translates the kernels, which takes minutes the first time\n",
                 index, device.major, device.minor);
  }
  return make_device_backend(index, "cuda:" + std::to_string(index), options);
}

}  // namespace leq::cuda
