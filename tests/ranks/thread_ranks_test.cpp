// Tests ranks that are threads: the suite of all communicators, and ranks that fail or are absent.
#include "ranks/communicator.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "ranks/communicator_suite.h"

namespace leq {
namespace {

// Calls work(communicator) on one thread per rank; returns each thread's error, "" for none.
std::vector<std::string> on_ranks(int size, const ThreadRankOptions& options,
                                  const std::function<void(Communicator&)>& work) {
  ThreadRanks ranks(size, options);
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(ranks[rank]);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
        ranks[rank].abort(Error(error.what()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

class ThreadRanksOf : public ::testing::TestWithParam<int> {};

TEST_P(ThreadRanksOf, MeetTheContractOfCommunicators) {
  for (const int threads : {0, 64}) {  // waiting threads spin, or sleep at once
    const auto errors = on_ranks(GetParam(), {.threads = threads},
                                 [](Communicator& ranks) { test::check_communicator(ranks, 60); });
    for (const auto& error : errors) EXPECT_EQ(error, "");
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadRanksOf, ::testing::Values(1, 2, 3, 4, 7));

TEST(ThreadRanks, NobodyLeavesABarrierBeforeAllHaveCome) {
  std::atomic<int> came{0};
  const auto errors = on_ranks(4, {}, [&](Communicator& ranks) {
    for (int round = 1; round <= 50; ++round) {
      ++came;
      ranks.barrier("a barrier");
      test::expect(came == 4 * round, "left early");
      ranks.barrier("another");
    }
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

// The kinds of operations in which the other ranks may wait when one rank fails.
using Call = void (*)(Communicator& ranks);
constexpr std::array<Call, 4> kCalls = {
    [](Communicator& ranks) { test::check_gather_round(ranks, 3, 2, Receivers::all); },
    [](Communicator& ranks) { test::check_gather_round(ranks, 3, 2, Receivers::leader); },
    [](Communicator& ranks) { test::check_broadcast_round(ranks, 3); },
    [](Communicator& ranks) { ranks.barrier("a barrier"); }};

TEST(ThreadRanks, ARankThatFailsEndsAllOthersAtEachKindOfCall) {
  for (const Call& call : kCalls) {
    for (const int bad : {0, 2}) {
      const auto errors = on_ranks(3, {}, [&](Communicator& ranks) {
        test::check_communicator(ranks, 2);
        if (ranks.rank() == bad) {
          throw ranks.abort(rank_error(ranks, Error("layers.3.o: broken")));
        }
        try {
          call(ranks);
          // In a broadcast, ranks only wait for the leader; the barrier reports any rank's failure.
          ranks.barrier("the next call");
          test::expect(false, "went on");
        } catch (const Error&) {
          ranks.barrier("a call after the end");
        }
      });
      const std::string want = "rank " + std::to_string(bad) + " of 3: layers.3.o: broken";
      for (const auto& error : errors) EXPECT_EQ(error, want);
    }
  }
}

// Only the leader finds this error, while the other rank waits for it.
TEST(ThreadRanks, AnErrorWithinAGatherEndsTheWaitsOfTheOthers) {
  const ThreadRankOptions patient = {.timeout = std::chrono::seconds(20)};
  const auto errors = on_ranks(2, patient, [](Communicator& ranks) {
    std::array<std::byte, 2> own = {}, whole = {};
    const std::vector<ByteRange> parts = {{0, 1}, {1, 2}};
    const SharedRows rows = {1, parts, own.data(), 1, whole.data(), 2};
    const std::vector<SharedRows> blocks(ranks.leads() ? 1 : 2, rows);
    ranks.gather(blocks, Receivers::leader, "layers.3.o");
  });
  const std::string want = "rank 0 of 2: layers.3.o: rank 1 gives 2 blocks, expected 1";
  EXPECT_EQ(errors, std::vector<std::string>(2, want));
}

TEST(ThreadRanks, AllRanksReportTheFirstOfTwoErrors) {
  const auto errors = on_ranks(3, {}, [&](Communicator& ranks) {
    if (ranks.rank() == 2) throw ranks.abort(Error("first"));
    try {
      ranks.barrier("a barrier");
    } catch (const Error&) {
      throw ranks.abort(Error("second"));
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(3, "first"));
}

TEST(ThreadRanks, ARankThatStaysAwayIsNamedWithTheCall) {
  const ThreadRankOptions hasty = {.timeout = std::chrono::milliseconds(50)};
  const auto errors = on_ranks(3, hasty, [](Communicator& ranks) {
    if (ranks.rank() != 1) ranks.barrier("layers.3.o");
  });
  EXPECT_EQ(errors[1], "");
  for (const std::size_t rank : {0, 2}) {
    EXPECT_NE(errors[rank].find("rank 1 of 3 does not come to layers.3.o"), std::string::npos)
        << errors[rank];
  }
}

// The leader may take any time before its next operation.
TEST(ThreadRanks, TheTimeoutDoesNotApplyToTheLeadersNextOperation) {
  const ThreadRankOptions hasty = {.timeout = std::chrono::milliseconds(300)};
  const auto errors = on_ranks(2, hasty, [](Communicator& ranks) {
    if (ranks.leads()) std::this_thread::sleep_for(std::chrono::milliseconds(700));
    test::check_broadcast_round(ranks, 3);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(ThreadRanks, RefuseNumbersOutOfRange) {
  EXPECT_THROW(ThreadRanks(0, {}), Error);
  EXPECT_THROW(ThreadRanks(ThreadRanks::kMaxRanks + 1, {}), Error);
}

}  // namespace
}  // namespace leq
