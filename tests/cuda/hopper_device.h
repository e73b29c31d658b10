// A device of compute capability 9.0 for a test of what only that one has.
#pragma once

#include <cstdint>
#include <string_view>

#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU {

// The emulator claims to be one while this lives, with two multiprocessors, so that a block has
// several tiles. A GPU is what it is.
class HopperDevice {
 public:
  HopperDevice();
  ~HopperDevice();
  HopperDevice(const HopperDevice&) = delete;
  HopperDevice& operator=(const HopperDevice&) = delete;

  bool exists() const;

 private:
  rt::DeviceInfo before_;
};

// Launches of the kernels whose names begin so. The emulator alone counts them.
class LaunchCount {
 public:
  explicit LaunchCount(std::string_view kernels);
  // A test failure where another number were launched since this was made.
  void expect(std::uint64_t launches) const;

 private:
  std::string_view kernels_;
  std::uint64_t before_ = 0;
};

}  // namespace leq::LEQ_GPU
