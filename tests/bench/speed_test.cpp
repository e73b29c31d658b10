#include "tools/bench/parts/speed.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace leq {
namespace {

// 1 GB of weights, 0.25 GB of keys and values, 2 billion operations per token.
constexpr BenchWork kWork = {1'000'000'000, 250'000'000, 2e9, 128, 5e8};
const MachineLimits kLimits = {10.0, 1000.0, "vpdpbusd"};

// Creates runs with these durations in seconds, all with the same hardware limits.
std::vector<BenchRun> runs_of(const std::vector<double>& seconds) {
  std::vector<BenchRun> runs;
  for (const double each : seconds) runs.push_back({each, kLimits});
  return runs;
}

TEST(BenchTestName, IsThatOfLlamaBench) {
  EXPECT_EQ(bench_test_name({512, 0, 0}), "pp512");
  EXPECT_EQ(bench_test_name({0, 128, 4096}), "tg128");
  EXPECT_EQ(bench_test_name({512, 128, 0}), "pp512+tg128");
  EXPECT_EQ(bench_test_name({0, 128, 0, 16}), "tg128x16");
}

TEST(BenchNumbers, GenerationIsHeldAgainstReading) {
  // 4 tokens read 1.25 GB each: 5 GB in 1 s, for which 0.5 s would suffice at 10 GB/s.
  const BenchNumbers numbers = bench_numbers({0, 4, 100}, kWork, runs_of({1.0, 2.0, 0.8}));
  EXPECT_DOUBLE_EQ(numbers.tps, 4.0);
  EXPECT_DOUBLE_EQ(numbers.tps_min, 2.0);
  EXPECT_DOUBLE_EQ(numbers.tps_max, 5.0);
  EXPECT_DOUBLE_EQ(numbers.gbps, 5.0);
  EXPECT_DOUBLE_EQ(numbers.gops, 8.0);
  EXPECT_EQ(numbers.limit_kind, "read");
  EXPECT_DOUBLE_EQ(numbers.limit, 10.0);
  EXPECT_DOUBLE_EQ(numbers.share, 0.5);
}

TEST(BenchNumbers, PromptsAreHeldAgainstArithmetic) {
  // 256 tokens of 2 GOP took 1 s; the weights were read twice.
  const BenchNumbers numbers = bench_numbers({256, 0, 0}, kWork, runs_of({1.0}));
  EXPECT_DOUBLE_EQ(numbers.gops, 512.0);
  EXPECT_DOUBLE_EQ(numbers.gbps, 2.5);
  EXPECT_EQ(numbers.limit_kind, "vpdpbusd");
  EXPECT_DOUBLE_EQ(numbers.limit, 1000.0);
  EXPECT_DOUBLE_EQ(numbers.share, 0.512);
}

TEST(BenchNumbers, MixedTestsAreHeldAgainstBoth) {
  // At the hardware limits, 125 tokens need 0.25 s of arithmetic and 2 need 0.25 s of reading.
  const BenchNumbers numbers = bench_numbers({125, 2, 0}, kWork, runs_of({1.0}));
  EXPECT_DOUBLE_EQ(numbers.share, 0.5);
  EXPECT_DOUBLE_EQ(numbers.limit, 254.0);
}

TEST(BenchNumbers, BatchesAreHeldAgainstReadingAndArithmetic) {
  // At the limits, 5 steps of 20 tokens need 0.625 s to read 5 x 1.25 GB, 0.25 s for 100 x 2.5 GOP.
  const BenchNumbers numbers = bench_numbers({0, 5, 100, 20}, kWork, runs_of({1.75}));
  EXPECT_DOUBLE_EQ(numbers.tps, 100 / 1.75);
  EXPECT_DOUBLE_EQ(numbers.gbps, 6.25 / 1.75);
  EXPECT_EQ(numbers.limit_kind, "read, then compute");
  EXPECT_DOUBLE_EQ(numbers.limit, 100 / 0.875);
  EXPECT_DOUBLE_EQ(numbers.share, 0.5);
}

TEST(BenchNumbers, MedianOfAnEvenNumberOfRunsLiesBetween) {
  EXPECT_DOUBLE_EQ(bench_numbers({0, 1, 0}, kWork, runs_of({4.0, 1.0, 3.0, 2.0})).tps, 1 / 2.5);
}

TEST(BenchNumbers, RunsAreHeldAgainstTheirOwnLimits) {
  // 5 GB took 1, 2 and 4 s at bandwidth limits of 10, 4 and 2 GB/s: 50, 62.5 and 62.5 %.
  std::vector<BenchRun> runs = runs_of({1.0, 2.0, 4.0});
  runs[1].limits.read_gbps = 4.0;
  runs[2].limits.read_gbps = 2.0;
  const BenchNumbers numbers = bench_numbers({0, 4, 100}, kWork, runs);
  EXPECT_DOUBLE_EQ(numbers.tps, 2.0);
  EXPECT_DOUBLE_EQ(numbers.limit, 4.0);
  EXPECT_DOUBLE_EQ(numbers.share, 0.625);
}

TEST(BenchNumbers, NeedRuns) { EXPECT_THROW(bench_numbers({1, 0, 0}, kWork, runs_of({})), Error); }

}  // namespace
}  // namespace leq
