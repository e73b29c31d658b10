// Emulates a device of compute capability 9.0, for tests of features that only such devices have.
#pragma once

#include <cstdint>
#include <string_view>

#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU {

// While such an object exists, the emulator has compute capability 9.0 and two multiprocessors, so
// that a block has several tiles. A real GPU is unchanged.
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

// Counts launches of kernels whose names begin with a prefix; only the emulator counts them.
class LaunchCount {
 public:
  explicit LaunchCount(std::string_view kernels);
  // Fails the test unless exactly `launches` such kernels were launched since construction.
  void expect(std::uint64_t launches) const;

 private:
  std::string_view kernels_;
  std::uint64_t before_ = 0;
};

}  // namespace leq::LEQ_GPU
