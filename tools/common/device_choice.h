// From -dev, -ngl and --vram to a backend.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "platform/make_backend.h"
#include "tools/common/options.h"

namespace leq {

// What -dev says, or where it does not, -ngl: 0 is the CPU, anything else the first GPU. Throws
// Error where the two contradict each other.
std::string device_name(const Options& options);

// --vram in bytes; 0 where it is not given. Throws Error where it is no size or is given for a CPU.
std::uint64_t memory_cap(const Options& options);

// --exact; fast for a tool without it.
Arithmetic arithmetic_of(const Options& options);

// --numa, and what it says; off for a tool without it.
Option numa_option(const std::string& group);
NumaMode numa_mode(const Options& options);

DeviceOptions device_options(const Options& options, int threads);

// Throws Error naming the option where this build or this machine has no such device.
std::unique_ptr<Backend> chosen_backend(const Options& options, int threads);

// Calls `work`; where that finds no device and -ngl was what asked for it, the error names -ngl.
void naming_gpu_layers(const Options& options, const std::function<void()>& work);

// A model is on one device as a whole: throws Error where -ngl asks for some of its layers.
void check_gpu_layers(const Options& options, std::int64_t layers);

// --list-devices: what -dev takes here.
Answer list_devices_answer();

}  // namespace leq
