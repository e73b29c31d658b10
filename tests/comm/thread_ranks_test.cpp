// Ranks that are threads: the suite of all communicators, ranks that fail or stay away.
#include "comm/thread_ranks.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "comm/communicator_suite.h"

namespace leq {
namespace {

// Calls work(communicator) on a thread for each rank; what each threw, "" for nothing.
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

TEST_P(ThreadRanksOf, DoWhatCommunicatorsDo) {
  for (const int threads : {0, 64}) {  // who waits spins, or sleeps at once
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

// Rows that are one memory for all: each rank writes its part, and reads all when it is through. A
// rank that is ahead must not write what another still reads; two blocks take turns, as the inputs
// of a model's linears do.
TEST_P(ThreadRanksOf, MeetWhereTheirRowsAreOneMemory) {
  constexpr std::size_t kPart = 40;
  const int size = GetParam();
  const std::size_t stride = kPart * static_cast<std::size_t>(size);
  std::array<std::vector<std::byte>, 2> whole = {std::vector<std::byte>(3 * stride),
                                                 std::vector<std::byte>(3 * stride)};
  std::vector<ByteRange> parts;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(size); ++rank) {
    parts.push_back({rank * kPart, (rank + 1) * kPart});
  }
  const auto errors = on_ranks(size, {}, [&](Communicator& ranks) {
    const auto own = static_cast<std::size_t>(ranks.rank());
    for (int round = 0; round < 400; ++round) {
      std::vector<std::byte>& rows = whole[static_cast<std::size_t>(round) % 2];
      for (std::int64_t row = 0; row < 3; ++row) {
        for (std::size_t i = 0; i < kPart; ++i) {
          rows[static_cast<std::size_t>(row) * stride + own * kPart + i] =
              test::number_of(round, ranks.rank(), 0, row, i);
        }
      }
      const SharedRows block = {3, parts, rows.data() + own * kPart, stride, rows.data(), stride};
      ranks.gather({&block, 1}, Receivers::all, "rows of all");
      for (std::size_t at = 0; at < rows.size(); ++at) {
        const auto of = static_cast<int>(at % stride / kPart);
        test::expect(
            rows[at] ==
                test::number_of(round, of, 0, static_cast<std::int64_t>(at / stride), at % kPart),
            "round " + std::to_string(round) + ", byte " + std::to_string(at));
      }
      if (round % 7 == 0) test::check_broadcast_round(ranks, round);
      if (round % 11 == 0) ranks.barrier("a barrier");
    }
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

// The call at which the others wait when a rank fails.
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
          // Of a broadcast a rank learns nothing but what the leader says.
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

TEST(ThreadRanks, TheFirstOfTwoErrorsIsEverybodys) {
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
  const ThreadRankOptions hasty = {.patience = std::chrono::milliseconds(50)};
  const auto errors = on_ranks(3, hasty, [](Communicator& ranks) {
    if (ranks.rank() != 1) ranks.barrier("layers.3.o");
  });
  EXPECT_EQ(errors[1], "");
  for (const std::size_t rank : {0, 2}) {
    EXPECT_NE(errors[rank].find("rank 1 of 3 does not come to layers.3.o"), std::string::npos)
        << errors[rank];
  }
}

// The leader may think for as long as it likes before it says what is next.
TEST(ThreadRanks, TheLeaderIsWaitedForWithPatience) {
  const ThreadRankOptions hasty = {.patience = std::chrono::milliseconds(300)};
  const auto errors = on_ranks(2, hasty, [](Communicator& ranks) {
    if (ranks.leads()) std::this_thread::sleep_for(std::chrono::milliseconds(700));
    test::check_broadcast_round(ranks, 3);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(ThreadRanks, RefuseNumbersOutOfRange) {
  EXPECT_THROW(ThreadRanks(0, {}), Error);
  EXPECT_THROW(ThreadRanks(ThreadRanks::kMostRanks + 1, {}), Error);
}

}  // namespace
}  // namespace leq
