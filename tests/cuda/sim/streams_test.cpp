// Two streams with events between them: the emulator detects a missing wait.
#include <gtest/gtest.h>

#include <numeric>

#include "../device_memory.h"
#include "cuda/rt/rt.h"
#include "cuda/sim/emulator.h"

namespace leq::LEQ_GPU {
namespace {

enum class Bug { none, planted };

class Streams : public testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override { simt::schedule() = {GetParam(), simt::CopyLands::at_wait}; }
  void TearDown() override { simt::schedule() = {}; }

  static constexpr std::size_t kBytes = 64;
  rt::StreamOwner copies = rt::make_stream(0);
  rt::EventOwner copied = rt::make_event(0);
  std::vector<std::uint8_t> from = std::vector<std::uint8_t>(kBytes, 7);
};

TEST_P(Streams, AMissingWaitForTheOtherStreamShows) {
  const auto run = [&](Bug bug) {
    const DeviceArray<std::uint8_t> landing(kBytes), out(kBytes);
    rt::copy_to_device(landing.data(), from.data(), kBytes, *copies);
    rt::record(*copied, *copies);
    if (bug == Bug::none) rt::wait(test_stream(), *copied);
    rt::copy_on_device(out.data(), landing.data(), kBytes, test_stream());
    return out.host();
  };
  for (int round = 0; round < 4; ++round) ASSERT_EQ(run(Bug::none), from);
  int shown = 0;
  for (int round = 0; round < 16; ++round) shown += run(Bug::planted) != from ? 1 : 0;
  EXPECT_GT(shown, 0) << "the copy always ran first";
}

// The bug: the next copy overwrites a slot that the other stream is still reading.
TEST_P(Streams, ASlotThatIsOverwrittenTooEarlyShows) {
  const rt::EventOwner read = rt::make_event(0);
  const std::vector<std::uint8_t> next(kBytes, 9);
  const auto run = [&](Bug bug) {
    const DeviceArray<std::uint8_t> landing(kBytes), out(kBytes);
    rt::copy_to_device(landing.data(), from.data(), kBytes, *copies);
    rt::record(*copied, *copies);
    rt::wait(test_stream(), *copied);
    rt::copy_on_device(out.data(), landing.data(), kBytes, test_stream());
    rt::record(*read, test_stream());
    if (bug == Bug::none) rt::wait(*copies, *read);
    rt::copy_to_device(landing.data(), next.data(), kBytes, *copies);
    const rt::EventOwner last = rt::make_event(0);
    rt::record(*last, *copies);
    rt::synchronize(*last);
    return out.host();
  };
  for (int round = 0; round < 4; ++round) ASSERT_EQ(run(Bug::none), from);
  EXPECT_NE(run(Bug::planted), from) << "the second copy waited though nothing said so";
}

TEST_P(Streams, APinnedBufferThatIsFilledTooEarlyShows) {
  const auto run = [&](Bug bug) {
    const DeviceArray<std::uint8_t> landing(kBytes);
    std::vector<std::uint8_t> pinned = from;
    rt::copy_to_device(landing.data(), pinned.data(), kBytes, *copies);
    rt::record(*copied, *copies);
    if (bug == Bug::none) rt::synchronize(*copied);
    pinned.assign(kBytes, 1);
    rt::synchronize(*copies);
    return landing.host();
  };
  EXPECT_EQ(run(Bug::none), from);
  EXPECT_NE(run(Bug::planted), from);
}

TEST_P(Streams, AnEventThatWasNeverRecordedHoldsNothingUp) {
  const rt::EventOwner never = rt::make_event(0);
  const DeviceArray<std::uint8_t> out(kBytes);
  rt::wait(test_stream(), *never);
  rt::synchronize(*never);
  rt::copy_to_device(out.data(), from.data(), kBytes, test_stream());
  EXPECT_EQ(out.host(), from);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Streams, testing::Values(0u, 1u, 2u, 7u, 12345u));

}  // namespace
}  // namespace leq::LEQ_GPU
