// Chooses a backend by the name that users give a device.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"

namespace leq {

struct DeviceOptions {
  std::string_view device = "cpu";  // "cpu", "sim", "cuda" (the first GPU) or "cuda:N"
  int threads = 0;                  // 0 = one for each usable core
};

// Throws Error naming the device where this build or this machine has none of that name.
std::unique_ptr<Backend> make_backend(const DeviceOptions& options);

// One line for each device that make_backend takes here; where there is no GPU the reason.
std::vector<std::string> list_devices();

}  // namespace leq
