// Selects the device that a user names and explains why no device can be used. It does not depend
// on CUDA, so that it can be tested without a GPU.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU {

// Returns "cuda:0  GPU-8932f937-...  NVIDIA H200, compute capability 9.0, 139.8 GB, 139.2 GB free".
// The last part is omitted if the device does not report its free memory.
std::string device_line(std::size_t index, const rt::DeviceInfo& device,
                        std::optional<std::size_t> free_bytes);

// Information about runtime and driver; versions are encoded as in CUDA: 13000 is 13.0.
struct DriverState {
  int driver_version = 0;  // newest CUDA version that the driver supports; 0: no driver
  int runtime_version = 0;
  std::string reason;                  // message of the runtime
  std::optional<std::string> visible;  // value of CUDA_VISIBLE_DEVICES, if it is set
};
std::string explain_no_device(const DriverState& state);

// Finds the device `which`, a number or the start of a UUID in any case; returns its index. Throws
// Error if no device or several devices match.
int choose_device(std::string_view which, std::span<const rt::DeviceInfo> devices);

// How code built for `images` ("80-real 89-real 90a-real 80-virtual", in CMake's syntax) runs on a
// compute capability. Machine code runs on its major version with the same or a later minor
// version, with `a` only on that version; PTX (`virtual` or no suffix) runs on all later versions,
// after the driver has translated it. 9.0 requires 90a, because kernels that need 90a are selected
// on 9.0.
enum class CodeFor { nothing, translation, machine };
CodeFor code_for(std::string_view images, int major, int minor);

}  // namespace leq::LEQ_GPU
