// Integer matmuls on wgmma and the copy engine of compute capability 9.0: floats bit-identical to
// the formulas of docs/numerics.md and so to int_gemm.
#include "cuda/kernels/matmul/int_matmul.h"

#include "cuda/sim/emulator.h"
#include "hopper_device.h"
#include "int_matmul_case.h"

namespace leq::LEQ_GPU {
namespace {

class IntWgmmaTest : public testing::TestWithParam<IntCase> {
 protected:
  HopperDevice device_;
};

TEST_P(IntWgmmaTest, ValuesFollowTheFormula) {
  const IntCase& c = GetParam();
  if (!device_.exists()) GTEST_SKIP() << "needs compute capability 9.0";
  const LaunchCount count("int_gemm_wgmma");
  for (const simt::Schedule& schedule :
       {simt::Schedule{}, simt::Schedule{6, simt::CopyArrival::at_issue}}) {
    simt::schedule() = schedule;
    expect_values(c);
  }
  count.expect(2);
}

INSTANTIATE_TEST_SUITE_P(
    Signed8, IntWgmmaTest,
    testing::Values(IntCase{8, false, 0, 0, 70, 384, {70}},
                    IntCase{8, false, 0, 0, 300, 200, {130, 30, 17}},
                    IntCase{8, false, 0, 0, 129, 640, {65, 65}, Finish::swiglu},
                    IntCase{8, false, 0, 0, 66, 300, {140}, Finish::gelu},
                    IntCase{8, false, 0, 0, 70, 300, {65, 65}, Finish::geglu},
                    IntCase{8, false, 0, 0, 70, 300, {65, 65}, Finish::clamped_swiglu},
                    IntCase{8, false, 0, 128, 131, 1000, {50}, Finish::add},
                    IntCase{8, false, 128, 0, 65, 640, {70, 70}, Finish::swiglu},
                    IntCase{8, false, 128, 128, 100, 900, {33, 130}, Finish::gelu}));

INSTANTIATE_TEST_SUITE_P(
    Unpacked, IntWgmmaTest,
    testing::Values(IntCase{8, true, 0, 0, 70, 300, {40, 20}},
                    IntCase{8, true, 128, 128, 66, 512, {70, 70}, Finish::swiglu},
                    IntCase{4, false, 128, 128, 130, 1200, {140}},
                    IntCase{4, true, 128, 0, 80, 640, {65, 65}, Finish::swiglu},
                    IntCase{4, false, 128, 128, 65, 384, {40, 24, 8}, Finish::add},
                    IntCase{3, true, 128, 128, 129, 640, {70, 70}, Finish::swiglu},
                    IntCase{3, false, 128, 0, 70, 384, {130}},
                    IntCase{2, true, 128, 128, 66, 520, {40}, Finish::gelu},
                    IntCase{4, true, 128, 128, 70, 100, {40}},
                    IntCase{2, false, 128, 0, 100, 256, {129, 30}}));

// 28,672 columns of the largest codes; the limits of codes and zero points of fewer bits.
INSTANTIATE_TEST_SUITE_P(
    Extremes, IntWgmmaTest,
    testing::Values(IntCase{8, false, 0, 0, 65, 28672, {8}, Finish::store, true},
                    IntCase{8, true, 128, 128, 65, 28672, {8}, Finish::store, true},
                    IntCase{4, true, 128, 128, 65, 512, {40}, Finish::store, true},
                    IntCase{3, true, 128, 128, 65, 512, {40}, Finish::store, true},
                    IntCase{2, true, 128, 0, 65, 512, {40}, Finish::store, true}));

}  // namespace
}  // namespace leq::LEQ_GPU
