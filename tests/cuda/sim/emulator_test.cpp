// The emulator always detects bugs that hardware shows only sometimes. Each kernel is run with one
// planted bug, and without it.
#include <gtest/gtest.h>

#include <numeric>

#include "../device_memory.h"
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"

namespace leq::LEQ_GPU {
namespace {

constexpr unsigned kThreads = 128;

enum class Bug { none, planted };

std::vector<int> run(const char* name, void (*kernel)(int*, const int*, Bug), Bug bug,
                     std::size_t shared_bytes = 0) {
  std::vector<int> numbers(4 * kThreads);
  std::iota(numbers.begin(), numbers.end(), 1);
  const DeviceArray<int> in(numbers), out(numbers.size());
  out.zero();
  rt::run(test_stream(), {name, dim3(1), dim3(kThreads), shared_bytes}, kernel, out.data(),
          static_cast<const int*>(in.data()), bug);
  return out.host();
}

class Scheduled : public testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override { simt::schedule() = {GetParam(), simt::CopyArrival::at_wait}; }
  void TearDown() override { simt::schedule() = {}; }
};
using Emulator = Scheduled;

__global__ void reverse(int* out, const int* in, Bug bug) {
  LEQ_SHARED(int[kThreads], shared);
  shared[threadIdx.x] = in[threadIdx.x];
  if (bug == Bug::none) __syncthreads();
  out[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

TEST_P(Emulator, ShowsAMissingBarrierBeforeReading) {
  const auto right = run("reverse", reverse, Bug::none);
  for (unsigned i = 0; i < kThreads; ++i) ASSERT_EQ(right[i], static_cast<int>(kThreads - i));
  EXPECT_NE(run("reverse", reverse, Bug::planted), right);
}

__global__ void two_rounds(int* out, const int* in, Bug bug) {
  LEQ_SHARED(int[kThreads], shared);
  for (unsigned round = 0; round < 2; ++round) {
    shared[threadIdx.x] = in[round * kThreads + threadIdx.x];
    __syncthreads();
    out[round * kThreads + threadIdx.x] = shared[(threadIdx.x + 33) % kThreads];
    if (bug == Bug::none) __syncthreads();
  }
}

TEST_P(Emulator, ShowsAMissingBarrierBeforeOverwriting) {
  const auto right = run("two_rounds", two_rounds, Bug::none);
  for (unsigned i = 0; i < kThreads; ++i) {
    ASSERT_EQ(right[i], static_cast<int>((i + 33) % kThreads + 1));
  }
  EXPECT_NE(run("two_rounds", two_rounds, Bug::planted), right);
}

// Each thread copies 16 bytes asynchronously and reads them back.
__global__ void copy_without_wait(int* out, const int* in, Bug bug) {
  LEQ_DYNAMIC_SHARED(int, shared);
  ptx::cp_async16(shared + 4 * threadIdx.x, in + 4 * threadIdx.x, true);
  ptx::cp_async_commit();
  if (bug == Bug::none) ptx::cp_async_wait<0>();
  for (unsigned i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = shared[4 * threadIdx.x + i];
}

TEST_P(Emulator, ShowsAMissingWaitForCopies) {
  const auto right = run("copy", copy_without_wait, Bug::none, 16 * kThreads);
  EXPECT_EQ(right[5], 6);
  const auto wrong = run("copy", copy_without_wait, Bug::planted, 16 * kThreads);
  EXPECT_EQ(wrong[5], static_cast<int>(0xcdcdcdcd)) << "the copy landed before it was waited for";
}

// The second copy overwrites memory that other threads may still read.
__global__ void copy_over(int* out, const int* in, Bug bug) {
  LEQ_DYNAMIC_SHARED(int, shared);
  ptx::cp_async16(shared + 4 * threadIdx.x, in + 4 * threadIdx.x, true);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  __syncthreads();
  const unsigned other = (threadIdx.x + 37) % kThreads;
  if (bug == Bug::planted) ptx::cp_async16(shared + 4 * threadIdx.x, in, true);
  out[threadIdx.x] = shared[4 * other];
  if (bug == Bug::none) {
    __syncthreads();
    ptx::cp_async16(shared + 4 * threadIdx.x, in, true);
  }
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
}

TEST_P(Emulator, ShowsAMissingBarrierBeforeACopyThatLandsAtOnce) {
  simt::schedule().copy_arrival = simt::CopyArrival::at_issue;
  const auto right = run("copy_over", copy_over, Bug::none, 16 * kThreads);
  EXPECT_EQ(right[0], 4 * 37 + 1);
  EXPECT_NE(run("copy_over", copy_over, Bug::planted, 16 * kThreads), right);
}

// Each half of the block has a barrier of its own; the second half runs twice as many rounds.
__global__ void two_halves(int* out, const int* in, Bug bug) {
  LEQ_SHARED(int[kThreads], shared);
  constexpr int kHalf = kThreads / 2;
  const int thread = static_cast<int>(threadIdx.x), half = thread / kHalf;
  const int other = half * kHalf + (thread + 37) % kHalf;
  for (int round = 0; round < 2 + 2 * half; ++round) {
    shared[thread] = in[thread] + round;
    if (bug == Bug::none) ptx::sync_threads(1 + half, kHalf);
    out[round % 4 * static_cast<int>(kThreads) + thread] = shared[other];
    ptx::sync_threads(1 + half, kHalf);
  }
}

TEST_P(Emulator, ShowsAMissingBarrierOfSomeThreads) {
  const auto right = run("two_halves", two_halves, Bug::none);
  for (int i = 0; i < static_cast<int>(kThreads); ++i) {
    const int half = i / 64, other = half * 64 + (i + 37) % 64;
    for (int round = 0; round < 4; ++round) {
      const int expected = round < 2 + 2 * half ? other + 1 + round : 0;
      ASSERT_EQ(right[static_cast<std::size_t>(round) * kThreads + static_cast<std::size_t>(i)],
                expected);
    }
  }
  EXPECT_NE(run("two_halves", two_halves, Bug::planted), right);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Emulator, testing::Values(0u, 1u, 2u, 7u, 12345u));

__global__ void store_outside(int* out, const int*, Bug bug) {
  const unsigned past = bug == Bug::planted ? 4 * kThreads : 0;
  out[past + threadIdx.x] = 1;
}

TEST(EmulatorDeath, AStoreOutsideOfAnArrayIsSeenByAddressSanitizer) {
#if defined(__SANITIZE_ADDRESS__)
  EXPECT_DEATH(run("store_outside", store_outside, Bug::planted), "AddressSanitizer");
#else
  run("store_outside", store_outside, Bug::none);
  GTEST_SKIP() << "needs the preset asan";
#endif
}

__global__ void shared_outside(int* out, const int*, Bug bug) {
  LEQ_DYNAMIC_SHARED(int, shared);
  shared[bug == Bug::planted ? threadIdx.x + 1 : threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = shared[threadIdx.x];
}

TEST(EmulatorDeath, AStoreOutsideOfSharedMemoryIsSeenByAddressSanitizer) {
#if defined(__SANITIZE_ADDRESS__)
  EXPECT_DEATH(run("shared_outside", shared_outside, Bug::planted, 4 * kThreads),
               "AddressSanitizer");
#else
  run("shared_outside", shared_outside, Bug::none, 4 * kThreads);
  GTEST_SKIP() << "needs the preset asan";
#endif
}

__global__ void half_a_barrier(int*, const int*, Bug) {
  if (threadIdx.x < 8) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

TEST(EmulatorDeath, ABlockThatCannotGoOnIsReported) {
  EXPECT_DEATH(run("half_a_barrier", half_a_barrier, Bug::planted),
               "half_a_barrier: deadlock in block .0,0,0.: 0 threads ended, 120 at "
               "__syncthreads, 8 in a collective");
}

__global__ void one_is_missing(int*, const int*, Bug) {
  if (threadIdx.x >= 32) ptx::sync_threads(3, kThreads);
}
__global__ void one_too_many(int*, const int*, Bug) { ptx::sync_threads(3, kThreads - 32); }
__global__ void two_numbers(int*, const int*, Bug) {
  ptx::sync_threads(3, threadIdx.x < 32 ? 64 : 96);
}
__global__ void barrier_of_all(int*, const int*, Bug) { ptx::sync_threads(0, kThreads); }
__global__ void barrier_of_lanes(int*, const int*, Bug) { ptx::sync_threads(1, 16); }

TEST(EmulatorDeath, BarriersOfSomeThreadsThatAreUsedWronglyAreReported) {
  EXPECT_DEATH(run("one_is_missing", one_is_missing, Bug::planted),
               "deadlock.* 32 threads ended.* 96 at one of some");
  EXPECT_DEATH(run("one_too_many", one_too_many, Bug::planted), "more threads at a barrier");
  EXPECT_DEATH(run("two_numbers", two_numbers, Bug::planted), "two numbers");
  EXPECT_DEATH(run("barrier_of_all", barrier_of_all, Bug::planted), "not one of 1 to 15");
  EXPECT_DEATH(run("barrier_of_lanes", barrier_of_lanes, Bug::planted), "not one of warps");
}

__global__ void mixed_collectives(int* out, const int*, Bug) {
  if (threadIdx.x % 32 < 16) {
    __syncwarp();
  } else {
    out[threadIdx.x] = __shfl_xor_sync(~0u, static_cast<int>(threadIdx.x), 1);
  }
}

TEST(EmulatorDeath, LanesInDifferentCollectivesAreReported) {
  EXPECT_DEATH(run("mixed", mixed_collectives, Bug::planted), "different collectives");
}

__global__ void left_out(int*, const int*, Bug) { __syncwarp(0xfffffffeu); }

TEST(EmulatorDeath, ALaneOutsideOfItsMaskIsReported) {
  EXPECT_DEATH(run("left_out", left_out, Bug::planted), "mask leaves it out");
}

__global__ void bounded(int*, const int*, Bug) { LEQ_BOUNDS(64); }

TEST(EmulatorDeath, LaunchesThatHardwareRefusesAreRefused) {
  EXPECT_DEATH(run("bounded", bounded, Bug::planted), "launch bounds");
  EXPECT_DEATH(run("bounded", bounded, Bug::planted, std::size_t{200} << 10), "shared memory");
  const auto launch = [](dim3 blocks, dim3 threads) {
    rt::run(test_stream(), {"huge", blocks, threads}, bounded, static_cast<int*>(nullptr),
            static_cast<const int*>(nullptr), Bug::none);
    rt::synchronize(test_stream());
  };
  EXPECT_DEATH(launch(dim3(1), dim3(1025)), "1 to 1,024 threads");
  EXPECT_DEATH(launch(dim3(1, 65536), dim3(32)), "65,535 blocks");
  launch(dim3(0), dim3(32));  // does nothing
  EXPECT_THROW(rt::grid(1, 65536), Error);
  EXPECT_THROW(rt::grid(std::int64_t{1} << 31), Error);
}

__global__ void much_static(int*, const int*, Bug) {
  LEQ_SHARED(char[(48 << 10) + 16], large);
  large[0] = 0;
}

TEST(EmulatorDeath, TooMuchStaticSharedMemoryIsReported) {
  EXPECT_DEATH(run("much_static", much_static, Bug::planted), "48 KB");
}

__global__ void little_static(int*, const int*, Bug) {
  LEQ_SHARED(float[192], sums);
  sums[threadIdx.x] = 0;
}

// As in CUDA, a kernel may use 48 KB, minus its static memory, unless it requests more.
TEST(EmulatorDeath, FortyEightKilobytesUnaskedCountStaticMemoryToo) {
  simt::Grid grid = {.kernel = "little_static", .blocks = dim3(1), .threads = dim3(kThreads)};
  const auto launch = [&] { simt::run_grid(grid, [] { little_static(nullptr, nullptr, {}); }); };
  grid.shared_bytes = (48 << 10) - 768;
  launch();
  grid.shared_bytes += 16;
  EXPECT_DEATH(launch(), "static and dynamic shared memory");
  grid.shared_limit = 99 << 10;
  launch();
}

__global__ void shuffles(int* out, const int*, Bug) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  out[threadIdx.x] = __shfl_up_sync(~0u, lane, 3) + 100 * __shfl_down_sync(~0u, lane, 5) +
                     10000 * __shfl_xor_sync(~0u, lane, 9);
  const unsigned ballot = __ballot_sync(~0u, lane % 3 == 0);
  out[kThreads + threadIdx.x] = static_cast<int>(ballot);
}

TEST(EmulatorWarp, ShufflesAndVotesMeanWhatCudaSays) {
  const auto found = run("shuffles", shuffles, Bug::none);
  for (int i = 0; i < static_cast<int>(kThreads); ++i) {
    const int lane = i % 32;
    const int up = lane >= 3 ? lane - 3 : lane, down = lane + 5 < 32 ? lane + 5 : lane;
    EXPECT_EQ(found[static_cast<std::size_t>(i)], up + 100 * down + 10000 * (lane ^ 9));
    EXPECT_EQ(found[kThreads + static_cast<std::size_t>(i)], 0x49249249);
  }
}

// Half a warp may synchronize without the other half.
__global__ void half_warps(int* out, const int* in, Bug) {
  const unsigned lane = threadIdx.x % 32, mask = lane < 16 ? 0xffffu : 0xffff0000u;
  int sum = in[threadIdx.x];
  for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(mask, sum, step);
  out[threadIdx.x] = sum;
}

TEST(EmulatorWarp, MasksSplitAWarp) {
  const auto found = run("half_warps", half_warps, Bug::none);
  for (unsigned i = 0; i < kThreads; ++i) {
    const int first = static_cast<int>(i / 16 * 16) + 1;
    EXPECT_EQ(found[i], 16 * first + 120);
  }
}

TEST(Streams, NothingRunsBeforeSomethingWaits) {
  const std::vector<int> numbers(kThreads, 5);
  const DeviceArray<int> in(numbers);
  std::vector<int> seen(kThreads, 0);
  rt::copy_to_host(seen.data(), in.data(), kThreads * sizeof(int), test_stream());
  EXPECT_EQ(seen[0], 0) << "the copy did not wait";
  rt::synchronize(test_stream());
  EXPECT_EQ(seen[0], 5);
}

TEST(Streams, CopiesReadPinnedMemoryWhenTheyRun) {
  auto* pinned = static_cast<int*>(rt::allocate_pinned(sizeof(int)));
  const DeviceArray<int> there(1);
  *pinned = 1;
  rt::copy_to_device(there.data(), pinned, sizeof(int), test_stream());
  *pinned = 2;  // too early
  EXPECT_EQ(there.host()[0], 2);
  *pinned = 3;
  rt::copy_to_device(there.data(), pinned, sizeof(int), test_stream());
  rt::release_pinned(pinned);  // too early
  EXPECT_EQ(there.host()[0], static_cast<int>(0xdbdbdbdb)) << "released memory is poisoned";
}

TEST(Streams, NothingOrdersTwoStreamsButTheSeed) {
  const rt::StreamOwner other = rt::make_stream(0);
  const DeviceArray<int> there(1);
  int both = 0;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    simt::schedule().seed = seed;
    there.zero();
    rt::synchronize(test_stream());
    const std::vector<int> one(1, 1);
    rt::copy_to_device(there.data(), one.data(), sizeof(int), *other);  // without an event
    both |= there.host()[0] == 1 ? 2 : 1;
    rt::synchronize(*other);
  }
  simt::schedule() = {};
  EXPECT_EQ(both, 3) << "all seeds gave one order";
}

TEST(Streams, NewDeviceMemoryIsPoisoned) {
  const DeviceArray<unsigned> fresh(1);
  EXPECT_EQ(fresh.host()[0], 0xcdcdcdcdu);
}

}  // namespace
}  // namespace leq::LEQ_GPU
