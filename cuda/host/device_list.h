// Selects the device that a user names, and explains why none can be used: independent of a GPU, so
// that it can be tested without one.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU {

// "cuda:0  GPU-8932f937-...  NVIDIA H200, compute capability 9.0, 139.8 GB, 139.2 GB free" Without
// the last part where the device does not report it.
std::string device_line(std::size_t index, const rt::DeviceInfo& device,
                        std::optional<std::size_t> free_bytes);

// Runtime and driver information; versions as CUDA encodes them, 13000 for 13.0.
struct DriverState {
  int driver_version = 0;  // newest CUDA that the driver runs; 0 = there is no driver
  int runtime_version = 0;
  std::string reason;       // the runtime's message
  bool hides_devices = false;  // CUDA_VISIBLE_DEVICES is set,
  std::string visible;      // to this
};
std::string explain_no_device(const DriverState& state);

// The index of `which`, a number or the start of a UUID in any case. Throws Error where it matches
// no device or several.
int choose_device(std::string_view which, std::span<const rt::DeviceInfo> devices);

// Whether code for `images` ("80-real 89-real 90a-real 80-virtual", CMake's syntax) runs on a
// compute capability: machine code on the same major version and the same or a later minor one,
// with `a` only on that one, PTX (`virtual`, or neither word) on all later ones. On 9.0, kernels
// are chosen that need 90a.
bool has_image(std::string_view images, int major, int minor);

}  // namespace leq::LEQ_GPU
