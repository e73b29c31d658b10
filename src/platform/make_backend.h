// Chooses a backend by the name that users give a device.
#pragma once

#include <memory>
#include <string_view>

#include "backend/backend.h"

namespace leq {

struct DeviceOptions {
  std::string_view device = "cpu";
  int threads = 0;  // 0 = one for each usable core
};

// Throws Error naming the device where this build has none of that name.
std::unique_ptr<Backend> make_backend(const DeviceOptions& options);

}  // namespace leq
