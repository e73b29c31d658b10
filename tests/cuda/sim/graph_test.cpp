// Recorded graphs and kernels that begin early: their semantics, and that the emulator detects
// typical bugs. Each kernel is run with one planted bug, and without it.
#include <gtest/gtest.h>

#include <numeric>

#include "../device_memory.h"
#include "base/error.h"
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"

namespace leq::LEQ_GPU {
namespace {

constexpr unsigned kThreads = 64, kBlocks = 3;
constexpr std::size_t kNumbers = std::size_t{kThreads} * kBlocks;
enum class Bug { none, planted };

__global__ void add(int* out, int number) { out[threadIdx.x] += number; }

TEST(Graphs, KeepTheArgumentsOfTheirRecording) {
  const DeviceArray<int> out(kThreads);
  out.zero();
  int number = 1;
  rt::begin_capture(test_stream());
  EXPECT_TRUE(rt::is_capturing(test_stream()));
  rt::run(test_stream(), {"add", dim3(1), dim3(kThreads)}, add, out.data(), number);
  const rt::GraphOwner graph = rt::end_capture(test_stream());
  EXPECT_FALSE(rt::is_capturing(test_stream()));
  EXPECT_EQ(out.host()[0], 0) << "what is recorded does not run";
  number = 10;  // too late
  rt::launch(*graph, test_stream());
  rt::launch(*graph, test_stream());
  EXPECT_EQ(out.host()[0], 2);
}

TEST(Graphs, ReadMemoryWhenTheyRun) {
  auto* pinned = static_cast<int*>(rt::allocate_pinned(sizeof(int)));
  const DeviceArray<int> there(1);
  *pinned = 1;
  rt::begin_capture(test_stream());
  rt::copy_to_device(there.data(), pinned, sizeof(int), test_stream());
  const rt::GraphOwner graph = rt::end_capture(test_stream());
  for (const int number : {2, 3}) {
    *pinned = number;
    rt::launch(*graph, test_stream());
    EXPECT_EQ(there.host()[0], number);
  }
  rt::release_pinned(pinned);
}

// Makes a call that CUDA refuses while a stream records; the recording must then fail, too.
template <class Call>
void expect_refused(Call call, const std::string& what) {
  const auto refusal = [&](auto&& body) -> std::string {
    try {
      body();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was refused";
  };
  rt::begin_capture(test_stream());
  const std::string at_once = refusal(call);
  EXPECT_NE(at_once.find(what), std::string::npos) << at_once;
  const std::string at_the_end = refusal([] { rt::end_capture(test_stream()); });
  EXPECT_NE(at_the_end.find(what), std::string::npos) << at_the_end;
}

TEST(Graphs, RefuseAWaitAndMemoryWhileRecording) {
  expect_refused([] { rt::synchronize(test_stream()); }, "a wait");
  expect_refused([] { rt::allocate(0, 16); }, "an allocation");
  expect_refused([] { rt::allocate_pinned(16); }, "an allocation");
  void* const data = rt::allocate(0, 16);
  rt::begin_capture(test_stream());
  rt::release(0, data);  // cannot throw
  EXPECT_THROW(rt::end_capture(test_stream()), Error);
  rt::release(0, data);
  const DeviceArray<int> works(1);
  works.zero();
  EXPECT_EQ(works.host()[0], 0) << "the stream goes on";
}

// Writes out[i] = i + 1, but only after the preceding kernel has ended.
__global__ void produce(int* out, const int*, Bug) {
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  out[i] = static_cast<int>(i) + 1;
}

__global__ void consume(int* out, const int* in, Bug bug) {
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  const int early = in[i];
  ptx::wait_for_predecessor();
  out[i] = (bug == Bug::planted ? early : in[i]) * 2;
}

using Kernel = void (*)(int*, const int*, Bug);

// After a normal kernel, `first` (a to b) and `second` (b to c) begin early. Returns c.
std::vector<int> run_chain(Kernel first, Kernel second, Bug bug) {
  std::vector<int> numbers(kNumbers);
  std::iota(numbers.begin(), numbers.end(), 5);
  const DeviceArray<int> a(numbers), b(kNumbers), c(kNumbers);
  const auto launch = [&](const char* name, Kernel kernel, const DeviceArray<int>& out,
                          const DeviceArray<int>& in) {
    rt::run(test_stream(), {name, dim3(kBlocks), dim3(kThreads), 0, rt::Start::early}, kernel,
            out.data(), static_cast<const int*>(in.data()), bug);
  };
  rt::run(test_stream(), {"add", dim3(1), dim3(kThreads)}, add, a.data(), 100);
  launch("first", first, b, a);
  launch("second", second, c, b);
  return c.host();
}

class EarlyStart : public testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override { simt::schedule() = {GetParam(), simt::CopyLands::at_wait}; }
  void TearDown() override { simt::schedule() = {}; }
};

TEST_P(EarlyStart, ShowsAReadBeforeTheWait) {
  const auto right = run_chain(produce, consume, Bug::none);
  for (std::size_t i = 0; i < kNumbers; ++i) ASSERT_EQ(right[i], 2 * (static_cast<int>(i) + 1));
  EXPECT_NE(run_chain(produce, consume, Bug::planted), right);
}

// Runs the same kernels as a recorded graph.
TEST_P(EarlyStart, ShowsAReadBeforeTheWaitInAReplay) {
  const auto replayed = [](Bug bug) {
    const DeviceArray<int> b(kNumbers), c(kNumbers);
    rt::begin_capture(test_stream());
    rt::run(test_stream(), {"first", dim3(kBlocks), dim3(kThreads), 0, rt::Start::early}, produce,
            b.data(), static_cast<const int*>(nullptr), bug);
    rt::run(test_stream(), {"second", dim3(kBlocks), dim3(kThreads), 0, rt::Start::early}, consume,
            c.data(), static_cast<const int*>(b.data()), bug);
    const rt::GraphOwner graph = rt::end_capture(test_stream());
    rt::launch(*graph, test_stream());
    return c.host();
  };
  const auto right = replayed(Bug::none);
  for (std::size_t i = 0; i < kNumbers; ++i) ASSERT_EQ(right[i], 2 * (static_cast<int>(i) + 1));
  EXPECT_NE(replayed(Bug::planted), right);
}

// The preceding kernel writes the numbers that are already there; poison still reveals the bug.
TEST_P(EarlyStart, ShowsAReadBeforeTheWaitOfNumbersThatStay) {
  std::vector<int> numbers(kNumbers), twice;
  std::iota(numbers.begin(), numbers.end(), 5);
  for (const int number : numbers) twice.push_back(2 * number);
  const DeviceArray<int> a(numbers), b(kNumbers);
  const auto found = [&](Bug bug) {
    write_late({a.bytes()});
    rt::run(test_stream(), {"consume", dim3(kBlocks), dim3(kThreads), 0, rt::Start::early}, consume,
            b.data(), static_cast<const int*>(a.data()), bug);
    return b.host();
  };
  EXPECT_EQ(found(Bug::none), twice);
  EXPECT_NE(found(Bug::planted), twice);
}

// Overwrites the memory that the preceding kernel reads.
__global__ void copy_through(int* out, const int* in, Bug) {
  ptx::wait_for_predecessor();
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  out[i] = in[i];
}
__global__ void overwrite(int* numbers, const int*, Bug bug) {
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (bug == Bug::planted) numbers[i] = -1;
  ptx::wait_for_predecessor();
  numbers[i] = -1;
}

TEST_P(EarlyStart, ShowsAWriteBeforeTheWait) {
  std::vector<int> numbers(kNumbers);
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto copied = [&](Bug bug) {
    const DeviceArray<int> a(numbers), b(kNumbers);
    const auto launch = [&](const char* name, Kernel kernel, int* out, const int* in) {
      rt::run(test_stream(), {name, dim3(kBlocks), dim3(kThreads), 0, rt::Start::early}, kernel,
              out, in, bug);
    };
    launch("copy_through", copy_through, b.data(), a.data());
    launch("overwrite", overwrite, a.data(), nullptr);
    return b.host();
  };
  EXPECT_EQ(copied(Bug::none), numbers);
  EXPECT_NE(copied(Bug::planted), numbers);
}

// Second kernel of run_chain: it starts before the first has ended, has a barrier before its wait,
// and keeps shared memory across the wait.
__global__ void keep_over_the_wait(int* out, const int* in, Bug) {
  LEQ_SHARED(int[kThreads], kept);
  kept[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  const int other = kept[kThreads - 1 - threadIdx.x];
  ptx::wait_for_predecessor();
  __syncthreads();
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  out[i] = in[i] + 1000 * other + 1000 * kept[threadIdx.x];
}

TEST_P(EarlyStart, GoesOnWhereItStopped) {
  const auto found = run_chain(produce, keep_over_the_wait, Bug::none);
  for (std::size_t i = 0; i < kNumbers; ++i) {
    ASSERT_EQ(found[i], static_cast<int>(i) + 1 + 1000 * static_cast<int>(kThreads - 1));
  }
}

// If the middle one of three kernels lets the third begin before it waits itself, all three
// overlap. The third must then not rely on the first one's writes either.
TEST_P(EarlyStart, ShowsAReadOfWhatTheKernelBeforeTheLastWrites) {
  std::vector<int> numbers(kNumbers), twice;
  std::iota(numbers.begin(), numbers.end(), 5);
  for (const int number : numbers) twice.push_back(2 * number);
  const auto found = [&](Bug bug) {
    const DeviceArray<int> a(numbers), b(kNumbers), c(kNumbers);
    write_late({a.bytes()});
    const auto launch = [&](const char* name, Kernel kernel, int* out, const int* in) {
      rt::run(test_stream(), {name, dim3(kBlocks), dim3(kThreads), 0, rt::Start::early}, kernel,
              out, in, bug);
    };
    launch("between", produce, b.data(), nullptr);
    launch("consume", consume, c.data(), a.data());
    return c.host();
  };
  EXPECT_EQ(found(Bug::none), twice);
  EXPECT_NE(found(Bug::planted), twice);
}

// The list that a copy brings to the device may only be read after the wait.
TEST_P(EarlyStart, ShowsAReadBeforeTheWaitOfWhatACopyBrings) {
  const std::vector<int> numbers(kNumbers, 5), twice(kNumbers, 10);
  const auto found = [&](Bug bug) {
    const DeviceArray<int> a(kNumbers), b(kNumbers);
    a.zero();
    rt::synchronize(test_stream());
    rt::copy_to_device(a.data(), numbers.data(), kNumbers * sizeof(int), test_stream());
    rt::run(test_stream(), {"consume", dim3(kBlocks), dim3(kThreads), 0, rt::Start::early}, consume,
            b.data(), static_cast<const int*>(a.data()), bug);
    return b.host();
  };
  EXPECT_EQ(found(Bug::none), twice);
  EXPECT_NE(found(Bug::planted), twice);
}

INSTANTIATE_TEST_SUITE_P(Seeds, EarlyStart, testing::Values(0u, 1u, 2u, 7u, 12345u));

__global__ void some_wait(int* out, const int*, Bug bug) {
  if (bug == Bug::planted && threadIdx.x == kThreads - 1) return;
  ptx::wait_for_predecessor();
  out[blockIdx.x * kThreads + threadIdx.x] = 0;
}

TEST(EarlyStartDeath, AThreadThatEndsWithoutWaitingIsReported) {
  run_chain(produce, some_wait, Bug::none);
  EXPECT_DEATH(run_chain(produce, some_wait, Bug::planted),
               "second: a thread ended before ptx::wait_for_predecessor");
}

}  // namespace
}  // namespace leq::LEQ_GPU
