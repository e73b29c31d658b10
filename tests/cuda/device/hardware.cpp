// Runs the kernels' tests on a GPU, which ignores the schedules that tests request from the
// emulator. Without a GPU, the program reports this and ends.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "../device_memory.h"
#include "../hopper_device.h"
#include "cuda/rt/rt.h"
#include "cuda/sim/emulator.h"

simt::Schedule& simt::schedule() {
  static Schedule nobody_reads_it;
  return nobody_reads_it;
}

namespace leq::cuda {

HopperDevice::HopperDevice() = default;
HopperDevice::~HopperDevice() = default;
bool HopperDevice::exists() const { return rt::device_of(test_stream()).major == 9; }

LaunchCount::LaunchCount(std::string_view kernels) : kernels_(kernels) {}
void LaunchCount::expect(std::uint64_t) const {}

}  // namespace leq::cuda

namespace {

class OnHardware : public testing::Environment {
 public:
  void SetUp() override {
    if (!leq::cuda::rt::devices().empty()) return;
    std::printf("gpu: NOT RUN (%s)\n", leq::cuda::rt::why_no_device().c_str());
    std::exit(0);
  }
};

const auto* const hardware =
    testing::AddGlobalTestEnvironment(new OnHardware);  // owned by gtest from here on

}  // namespace
