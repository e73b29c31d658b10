// The GPUs that tests run on: the emulated one if it is built, and real ones.
#pragma once

#include <string>
#include <vector>

#include "case_names.h"
#include "runtime/make_backend.h"

namespace leq::test {

// Names accepted by make_backend: "sim", "cuda:0" ...
inline std::vector<std::string> gpu_devices() {
  std::vector<std::string> devices;
  for (const std::string& line : list_devices()) {
    const std::string device = line.substr(0, line.find(' '));
    if (device == "sim" || device.starts_with("cuda:")) devices.push_back(device);
  }
  return devices;
}

}  // namespace leq::test
