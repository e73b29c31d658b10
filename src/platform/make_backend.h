// Chooses a backend by the name that users give a device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/gpu_options.h"
#include "base/topology.h"

namespace leq {

struct DeviceOptions {
  // "cpu"; "cuda" (the first GPU), "cuda:N" or "cuda:GPU-8932f937" (the start of a UUID); "sim" or
  // "sim:8G", the emulated GPU and its memory.
  std::string device = "cpu";
  int threads = 0;                // 0 = one for each usable core
  GpuOptions gpu = {};            // of a GPU; a CPU is exact as it is
  NumaMode numa = NumaMode::off;  // of a CPU
};

// Throws Error naming the device where this build or this machine has none of that name.
std::unique_ptr<Backend> make_backend(const DeviceOptions& options);

// The layout of a device's memory: it starts nothing, takes nothing, and needs neither the device
// nor a build for it. Of `options` the cap plays no part. Throws Error where the name is none.
std::unique_ptr<Layout> make_layout(const DeviceOptions& options);

// One line for each device that make_backend takes here; where there is no GPU the reason.
std::vector<std::string> list_devices();

}  // namespace leq
