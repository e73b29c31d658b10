// Determines whether wgmma adds products of 16-bit floats in the same way as mma.
#include <gtest/gtest.h>

#include "../device_memory.h"
#include "../hopper_device.h"
#include "cuda/host/float_forms.h"
#include "cuda/kernels/launch.h"
#include "cuda/sim/emulator.h"
#include "launch_table.h"

namespace leq::LEQ_GPU {
namespace {

TEST(FloatForms, AreEqualWhereTheHardwareAddsAlike) {
  const HopperDevice hopper;
  for (const auto lands : {simt::CopyLands::at_wait, simt::CopyLands::at_issue}) {
    simt::schedule() = {3, lands};
    EXPECT_TRUE(finds_equal_forms(0, test_stream()));
    simt::schedule().float_sums = simt::FloatSums::otherwise;
    EXPECT_FALSE(finds_equal_forms(0, test_stream()));
  }
}

TEST(FloatForms, AreLookedForOn90Alone) {
  const std::uint64_t before = launches_of("float_forms");
  EXPECT_FALSE(finds_equal_forms(0, test_stream()));
  EXPECT_EQ(launches_of("float_forms"), before);
}

TEST(TermOrder, IsThatOfWgmmaForManyTokensWhereFormsAreEqual) {
  rt::DeviceInfo device;
  device.major = 9;
  EXPECT_EQ(term_order(129, device, true), TermOrder::steps);
  EXPECT_EQ(term_order(128, device, true), TermOrder::lanes);
  EXPECT_EQ(term_order(4096, device, false), TermOrder::lanes);
  device.major = 12;
  EXPECT_EQ(term_order(4096, device, true), TermOrder::lanes);
}

}  // namespace
}  // namespace leq::LEQ_GPU
