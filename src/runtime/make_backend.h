// Creates a backend from a device name as users write it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/topology.h"

namespace leq {

struct DeviceOptions {
  // "cpu"; "cuda" (the first GPU), "cuda:N" or "cuda:GPU-8932f937" (the start of a UUID); "sim" or
  // "sim:8G", the emulated GPU and its memory size.
  std::string device = "cpu";
  int threads = 0;                // 0 = one for each usable core
  GpuOptions gpu = {};            // GPUs only; a CPU is always exact
  NumaMode numa = NumaMode::off;  // CPUs only
};

// Throws Error naming the device if this build or this machine does not have it.
std::unique_ptr<Backend> make_backend(const DeviceOptions& options);

// The memory layout for a device. It starts and allocates nothing, and requires neither the device
// nor a build for it. The memory cap in `options` is ignored. Throws Error if the name is invalid.
std::unique_ptr<Layout> make_layout(const DeviceOptions& options);

// One line for each device that make_backend accepts here; without a GPU, the reason.
std::vector<std::string> list_devices();

}  // namespace leq
