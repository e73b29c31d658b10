// The arithmetic of bench/gpu/model.h on machines of round numbers, and that its list of launches
// names kernels that there are.
#include "bench/gpu/model.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "base/error.h"

namespace leq::bench {
namespace {

constexpr double kTrip = 0.6;  // us
// 100 multiprocessors at 1 GHz, 1,000 GB/s, launches of 2 us.
constexpr Machine kRound = {"round", "sm_80", 100, 1.0, 1000, 100, 2048, 1000, 500, 2.0};

Launch launch_of(double blocks, int warps) {
  Launch launch;
  launch.blocks = blocks;
  launch.warps = warps;
  launch.other = 0;
  launch.round_trips = 0;
  return launch;
}

TEST(GpuModel, BytesTakeTheirTime) {
  Launch launch = launch_of(100, 4);
  launch.bytes = 5e6;
  const Estimate found = estimate(kRound, launch, {32, 0, 0, 0});
  EXPECT_DOUBLE_EQ(found.memory_us, 5);
  EXPECT_DOUBLE_EQ(found.us, 7);
  EXPECT_STREQ(found.bound, "memory");
}

// 60 GB/s are on their way: 10 blocks of 6 warps with 600 bytes each in 0.6 us.
TEST(GpuModel, FewBytesOnTheirWayTakeLonger) {
  Launch launch = launch_of(10, 6);
  launch.bytes = 6e5;
  launch.ahead_bytes = 600;
  const Estimate found = estimate(kRound, launch, {32, 0, 0, 0});
  EXPECT_NEAR(found.memory_us, 10, 1e-9);
  EXPECT_STREQ(found.bound, "latency");
}

// 400 warps with 10 rounds of 1,000 instructions: 4 warps to a multiprocessor, one to a scheduler.
TEST(GpuModel, InstructionsTakeTheirTime) {
  Launch launch = launch_of(100, 4);
  launch.rounds = 4000;
  Estimate found = estimate(kRound, launch, {32, 1000, 2000, 7});
  EXPECT_DOUBLE_EQ(found.instructions, 4e6);
  EXPECT_DOUBLE_EQ(found.issue_us, 10);
  EXPECT_STREQ(found.bound, "instructions");
  // By the work instead of rounds: 7 in each.
  launch.rounds = 0;
  launch.work = 28000;
  EXPECT_DOUBLE_EQ(estimate(kRound, launch, {32, 1000, 2000, 7}).issue_us, 10);
  launch.beside = 100;
  EXPECT_DOUBLE_EQ(estimate(kRound, launch, {32, 1000, 2000, 7}).issue_us, 11);
  launch.beside = 0;
  launch.longest = true;
  EXPECT_DOUBLE_EQ(estimate(kRound, launch, {32, 1000, 2000, 7}).issue_us, 20);
  launch.longest = false;
  launch.other = 500;
  EXPECT_DOUBLE_EQ(estimate(kRound, launch, {32, 1000, 2000, 7}).issue_us, 10.5);
  // One block more than multiprocessors: one of them has two.
  launch.blocks = 101;
  launch.other = 0;
  EXPECT_DOUBLE_EQ(estimate(kRound, launch, {32, 1000, 2000, 7}).issue_us, 10 * 2 / 1.01);
}

TEST(GpuModel, ProductsTakeTheirTime) {
  Launch launch = launch_of(100, 4);
  launch.unit = Unit::mma_s8;
  launch.products = 100 * 1000.0 * 3000;  // 3,000 cycles
  EXPECT_DOUBLE_EQ(estimate(kRound, launch, {32, 1, 1, 1}).tensor_us, 3);
  launch.unit = Unit::mma_f16;
  EXPECT_DOUBLE_EQ(estimate(kRound, launch, {32, 1, 1, 1}).tensor_us, 6);
  launch.round_trips = 20;
  const Estimate found = estimate(kRound, launch, {32, 1, 1, 1});
  EXPECT_DOUBLE_EQ(found.trips_us, 20 * kTrip);
  EXPECT_STREQ(found.bound, "round trips");
}

TEST(GpuModel, BlocksFitByRegistersMemoryAndThreads) {
  Launch launch = launch_of(100, 8);
  EXPECT_EQ(estimate(kRound, launch, {128, 0, 0, 0}).resident, 2);
  EXPECT_EQ(estimate(kRound, launch, {129, 0, 0, 0}).resident, 1);
  EXPECT_EQ(estimate(kRound, launch, {16, 0, 0, 0}).resident, 8) << "2,048 threads";
  launch.shared_bytes = 32 << 10;
  EXPECT_EQ(estimate(kRound, launch, {16, 0, 0, 0}).resident, 3) << "33 of 100 KB";
}

TEST(GpuModel, ReadsBudgets) {
  const KernelCodes codes(
      "# kernel ...\n"
      "gemv<8,1> sm_80 60 0 66 61 65 16\n"
      "gemv<8,1> sm_90a 62 0 66 62 66 16\n"
      "norm sm_80 40\n");
  EXPECT_EQ(codes.of("gemv<8,", "sm_80").least, 61);
  EXPECT_EQ(codes.of("gemv<8,", "sm_80").most, 65);
  EXPECT_EQ(codes.of("gemv<8,", "sm_90a").registers, 62);
  EXPECT_EQ(codes.of("norm", "sm_80").work, 0);
  EXPECT_THROW(codes.of("norm", "sm_90a"), Error);
  EXPECT_THROW(codes.of("attention", "sm_80"), Error);
  EXPECT_THROW(KernelCodes("gemv<8,1> sm_80\n"), Error);
  EXPECT_THROW(KernelCodes("gemv<8,1> sm_80 60 0 66 61 16\n"), Error) << "an old line";
  EXPECT_THROW(
      KernelCodes("gemv<8,1> sm_80 1 0 2 2 2 1\ngemv<8,2> sm_80 1 0 2 2 2 1\n").of("gemv", "sm_80"),
      Error);
}

std::string budgets() {
  std::ifstream in(std::string(LEQ_SOURCE_DIR) + "/cuda/check/budgets.txt");
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(GpuModel, KnowsTheKernelsOfEveryLaunch) {
  const KernelCodes codes(budgets());
  for (const Machine& machine : machines()) {
    for (const Scheme& scheme : {Scheme{"int8", 8}, Scheme{"int4-g128", 4}}) {
      double token_us = 0, token_bytes = 0;
      auto parts = token_of_7b(scheme, 2048);
      for (const auto& [launch, times] : parts) {
        const KernelCode& code = codes.of(launch.kernel, machine.architecture);
        token_us += times * estimate(machine, launch, code).us;
        token_bytes += times * launch.bytes;
        if (launch.products > 0) {
          EXPECT_GT(code.work, 0) << launch.kernel << " on " << machine.architecture;
        }
      }
      // Nothing is faster than reading the weights of 6.6 G parameters, nor ten times as slow.
      EXPECT_GT(token_bytes, 6.6e9 * scheme.bits / 8);
      EXPECT_GT(token_us, token_bytes / machine.gbps * 1e-3);
      EXPECT_LT(token_us, 10 * token_bytes / machine.gbps * 1e-3);
      for (const auto& [launch, times] : prompt_of_7b(machine, scheme, 2048)) {
        EXPECT_NO_THROW(codes.of(launch.kernel, machine.architecture)) << times;
      }
    }
  }
}

TEST(GpuModel, KnowsTheKernelsOfF32Inputs) {
  const KernelCodes codes(budgets());
  for (const Machine& machine : machines()) {
    for (const Scheme& scheme : {Scheme{"act none", 4, true}, Scheme{"f16", 16, true}}) {
      for (const auto& [launch, times] : prompt_of_7b(machine, scheme, 2048)) {
        const KernelCode& code = codes.of(launch.kernel, machine.architecture);
        const Estimate found = estimate(machine, launch, code);
        EXPECT_GT(found.us, 0) << times;
        // By wgmma nothing but its rate holds the linears up.
        if (launch.unit == Unit::wgmma_f16) {
          EXPECT_STREQ(found.bound, "tensor cores") << launch.name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace leq::bench
