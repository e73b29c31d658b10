#include "../hopper_device.h"

#include <gtest/gtest.h>

#include "cuda/emulated/emulated_device.h"
#include "cuda/sim/emulator.h"
#include "launch_table.h"

namespace leq::LEQ_GPU {

HopperDevice::HopperDevice() : before_(rt::emulated_device()) {
  rt::DeviceInfo& device = rt::emulated_device();
  device.major = 9;
  device.minor = 0;
  device.shared_limit_bytes = std::size_t{227} << 10;
  device.multiprocessors = 2;
}
HopperDevice::~HopperDevice() {
  simt::schedule() = {};
  rt::emulated_device() = before_;
}
bool HopperDevice::exists() const { return true; }

LaunchCount::LaunchCount(std::string_view kernels)
    : kernels_(kernels), before_(launches_of(kernels)) {}
void LaunchCount::expect(std::uint64_t launches) const {
  EXPECT_EQ(launches_of(kernels_) - before_, launches) << "another kernel than " << kernels_;
}

}  // namespace leq::LEQ_GPU
