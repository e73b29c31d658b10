// Selects a backend from -dev, -ngl and --vram, and the number of ranks that share a model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/make_backend.h"
#include "tools/common/options.h"

namespace leq {

// Returns the device of -dev. Without -dev, -ngl decides: 0 is the CPU, anything else the first
// GPU. Throws Error if the two contradict each other.
std::string device_name(const Options& options);

// Returns --vram in bytes; 0 if not given. Throws Error if it is not a size or the device is a CPU.
std::uint64_t memory_cap(const Options& options);

// Returns the arithmetic that --exact selects; `fast` for a tool without that option.
Arithmetic arithmetic_of(const Options& options);

// The option --numa, and its value; for a tool without this option the value is `off`.
Option numa_option();
NumaMode numa_mode(const Options& options);

DeviceOptions device_options(const Options& options, int threads);

Option rank_option();
// Throws Error if the device or the thread placement does not support this number of ranks.
void check_ranks(const Options& options, std::int64_t ranks);
// Returns the value of --tp; 1 if the tool has no such option. Throws Error like check_ranks.
int rank_count(const Options& options);

// Throws Error naming the option if this build or machine has no such device.
std::unique_ptr<Backend> chosen_backend(const Options& options, int threads);

// Calls `work`; if it finds no device and -ngl requested one, the error names -ngl.
void naming_gpu_layers(const Options& options, const std::function<void()>& work);

// Throws Error if -ngl selects only some layers, because a model cannot be split between devices.
void check_gpu_layers(const Options& options, std::int64_t layers);

// Answers --list-devices with the values of -dev on this machine.
Answer list_devices_answer();

}  // namespace leq
