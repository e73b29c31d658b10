#include "cuda/host/device_list.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/error.h"
#include "base/text.h"

namespace leq::LEQ_GPU {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

std::string device_line(std::size_t index, const rt::DeviceInfo& device,
                        std::optional<std::size_t> free_bytes) {
  std::string line = "cuda:" + std::to_string(index) + "  " + device.uuid + "  " + device.name +
                     ", compute capability " + std::to_string(device.major) + "." +
                     std::to_string(device.minor) + ", " + human_bytes(device.memory_bytes);
  if (free_bytes) line += ", " + human_bytes(*free_bytes) + " free";
  return line;
}

std::string explain_no_device(const DriverState& state) {
  if (state.driver_version == 0) {
    return "no NVIDIA driver was found (this build has CUDA " +
           version_text(state.runtime_version) + ")";
  }
  if (state.driver_version < state.runtime_version / 1000 * 1000) {
    return "the driver is too old: it runs CUDA up to " + version_text(state.driver_version) +
           ", this build has CUDA " + version_text(state.runtime_version) +
           "; update the driver, or build with an older toolkit";
  }
  if (state.visible) {
    return "CUDA_VISIBLE_DEVICES is set to '" + printable(*state.visible) +
           "' and leaves none visible (" + state.reason + ")";
  }
  return state.reason + " (the driver runs CUDA up to " + version_text(state.driver_version) +
         ", this build has CUDA " + version_text(state.runtime_version) + ")";
}

int choose_device(std::string_view which, std::span<const rt::DeviceInfo> devices) {
  if (const auto number = parse_int(which)) {
    require(*number >= 0 && *number < std::ssize(devices), ErrorKind::no_device, Setting{"device"},
            " cuda:", which, ": expected cuda:0 to cuda:", devices.size() - 1, "; ",
            Setting{"list_devices"}, " shows them");
    return static_cast<int>(*number);
  }
  int found = -1;
  const std::string wanted = ascii_lower(which);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (!ascii_lower(devices[i].uuid).starts_with(wanted)) continue;
    require(found < 0, Setting{"device"}, " cuda:", printable(which), ": the UUIDs of cuda:", found,
            " and cuda:", i, " both begin so; write more of it");
    found = static_cast<int>(i);
  }
  require(found >= 0, ErrorKind::no_device, Setting{"device"}, " cuda:", printable(which),
          ": no visible GPU has a UUID that begins so; ", Setting{"list_devices"},
          " shows them, and CUDA_VISIBLE_DEVICES can hide some");
  return found;
}

CodeFor code_for(std::string_view images, int major, int minor) {
  const bool needs_specific = major == 9;
  CodeFor found = CodeFor::nothing;
  for (const auto item : split(images, " ")) {
    const auto parts = split(item, "-");
    const bool specific = parts[0].ends_with("a");
    const auto number = parse_int(parts[0].substr(0, parts[0].size() - (specific ? 1 : 0)));
    if (!number) {  // "native", "all" (CMake resolves them, no 90a); the runtime reports errors
      if (needs_specific) continue;
      return CodeFor::machine;
    }
    const int chip = major * 10 + minor, image = static_cast<int>(*number);
    const bool machine_code = parts.size() < 2 || parts[1] == "real";
    const bool ptx = parts.size() < 2 || parts[1] == "virtual";
    const bool same_family = image / 10 == major && image % 10 <= minor;
    if (specific ? image == chip : machine_code && same_family && !needs_specific) {
      return CodeFor::machine;
    }
    if (!specific && !needs_specific && ptx && image <= chip) found = CodeFor::translation;
  }
  return found;
}

}  // namespace leq::LEQ_GPU
