// Omits each synchronization of an exchange between peers in turn; the emulator must detect it.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "cuda/host/memory.h"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/peers/exchange.cuh"
#include "cuda/sim/emulator.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kRanks = 2, kRounds = 24;
constexpr std::int64_t kRows = 3, kBytes = 1200;  // size of a rank's part of a row

struct NoFence : CountedExchange {
  static void publish() {}
};
struct OneStepEarly : CountedExchange {
  static bool has_come(std::uint32_t flag, std::uint32_t epoch) {
    return static_cast<std::int32_t>(flag - epoch) >= 0;
  }
};
struct NotCounted : CountedExchange {
  static void count(std::uint32_t*) {}
};

std::byte number_of(int round, int rank, std::int64_t at) {
  return static_cast<std::byte>((round * 37 + rank * 11 + at * 5) % 253);
}

// Runs the rounds of an exchange; wrong() counts the received bytes that differ. Rank 0 runs ahead.
template <class Protocol>
class Rounds {
 public:
  Rounds() {
    for (int rank = 0; rank < kRanks; ++rank) {
      windows_.emplace_back(std::make_unique<DeviceScratch>(rank, window_bytes()));
      std::memset(windows_.back()->data(), 0, window_bytes());
    }
  }

  std::size_t wrong() {
    std::vector<std::size_t> found(kRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] { found[static_cast<std::size_t>(rank)] = run(rank); });
    }
    for (std::thread& thread : threads) thread.join();
    return found[0] + found[1];
  }

 private:
  static std::size_t window_bytes() { return gpu::exchange_bytes(kRows, kRanks * kBytes); }

  std::size_t run(int rank) {
    const rt::StreamOwner stream = rt::make_stream(rank);
    Pinned whole(kRows * kRanks * kBytes);
    ExchangeArguments a = arguments(rank, whole.data());
    std::size_t wrong = 0;
    for (int round = 0; round < kRounds; ++round) {
      for (std::int64_t at = 0; at < kRows * kRanks * kBytes; ++at) {
        whole.data()[at] = number_of(round, rank, at);
      }
      rt::run(*stream, {"exchange_rows", dim3(2), dim3(kExchangeThreads), 0, rt::Start::early},
              exchange_rows<Protocol>, a);
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      rt::synchronize(*stream);
      for (std::int64_t at = 0; at < kRows * kRanks * kBytes; ++at) {
        const auto of = static_cast<int>(at % (kRanks * kBytes) / kBytes);
        wrong += whole.data()[at] != number_of(round, of, at) ? 1 : 0;
      }
    }
    return wrong;
  }

  ExchangeArguments arguments(int rank, std::byte* whole) {
    ExchangeArguments a;
    a.plane_count = 1;
    ExchangePlane& plane = a.planes[0];
    plane.own = whole + rank * kBytes;
    plane.own_stride = plane.stride = kRanks * kBytes;
    plane.all = whole;
    for (int of = 0; of < kRanks; ++of) {
      plane.first[of] = static_cast<std::uint32_t>(of * kBytes);
      plane.bytes[of] = static_cast<std::uint32_t>(kBytes);
      plane.at[of] = static_cast<std::uint32_t>(of * kRows * kBytes);
      a.windows[of] = windows_[static_cast<std::size_t>(of)]->data();
    }
    a.rank = rank;
    a.ranks = kRanks;
    a.blocks = 2;
    a.rows = kRows;
    a.slot_bytes = static_cast<std::int64_t>(gpu::slot_bytes_of(window_bytes()));
    a.end = &ends_[rank];
    a.patience = 60'000'000'000;
    return a;
  }

  std::vector<std::unique_ptr<DeviceScratch>> windows_;
  ExchangeEnd ends_[kRanks];
};

class Exchange : public testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override { simt::schedule() = {GetParam(), simt::CopyLands::at_wait}; }
  void TearDown() override { simt::schedule() = {}; }
};

TEST_P(Exchange, BringsEveryRoundsBytes) {
  for (const simt::CopyLands lands : {simt::CopyLands::at_wait, simt::CopyLands::at_issue}) {
    simt::schedule().copy_lands = lands;
    EXPECT_EQ(Rounds<CountedExchange>().wrong(), 0u);
  }
}
// The system decides which of two threads is faster, so not every attempt shows a bug.
template <class Protocol>
bool shows() {
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (Rounds<Protocol>().wrong() > 0) return true;
  }
  return false;
}
TEST_P(Exchange, AMissingFenceShows) { EXPECT_TRUE(shows<NoFence>()); }
TEST_P(Exchange, AReaderOneStepEarlyShows) { EXPECT_TRUE(shows<OneStepEarly>()); }
TEST_P(Exchange, ACounterThatDoesNotMoveShows) { EXPECT_TRUE(shows<NotCounted>()); }

INSTANTIATE_TEST_SUITE_P(Seeds, Exchange, testing::Values(0, 1, 2));

}  // namespace
}  // namespace leq::LEQ_GPU
