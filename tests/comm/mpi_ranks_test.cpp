// Ranks that are processes of mpirun: the suite of all communicators, a rank that fails, stays away
// or dies, and settings that differ. Skipped where mpirun or MPI is not here.
#include "comm/mpi_ranks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "temporary_folder.h"
#include "tools/mpirun.h"

namespace leq {
namespace {

class MpiRanks : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string why = test::no_mpi(); !why.empty()) GTEST_SKIP() << why;
  }
  static test::Finished run(int processes, std::vector<std::string> words) {
    words.insert(words.begin(), LEQ_MPI_SUITE);
    const test::TemporaryFolder own;
    return test::run_by_mpi(own.path().string(), processes, words);
  }
};

TEST_P(MpiRanks, DoWhatCommunicatorsDo) {
  const test::Finished finished = run(GetParam(), {});
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  for (int rank = 0; rank < GetParam(); ++rank) {
    const std::string done =
        "rank " + std::to_string(rank) + " of " + std::to_string(GetParam()) + " is done";
    EXPECT_NE(finished.out.find(done), std::string::npos) << finished.out;
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, MpiRanks, ::testing::Values(1, 2, 3, 4));

class MpiErrors : public MpiRanks {};

TEST_P(MpiErrors, ARankThatFailsEndsAllWithItsError) {
  const test::Finished finished = run(3, {"fail", std::to_string(GetParam())});
  EXPECT_NE(finished.status, 0);
  const std::string want = "rank " + std::to_string(GetParam()) + " of 3: broken";
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_NE(finished.out.find("rank " + std::to_string(rank) + ": " + want), std::string::npos)
        << finished.out;
  }
}

TEST_P(MpiErrors, ARankThatStaysAwayIsNotWaitedForForever) {
  const test::Finished finished = run(2, {"stay-away", std::to_string(GetParam())});
  EXPECT_NE(finished.status, 0);
  EXPECT_NE(finished.out.find("waits for the others at"), std::string::npos) << finished.out;
}

TEST_P(MpiErrors, ARankThatDiesEndsAll) {
  const test::Finished finished = run(2, {"die", std::to_string(GetParam())});
  EXPECT_NE(finished.status, 0);
  const std::string want = "process rank " + std::to_string(GetParam());
  const std::string said = finished.out + finished.err;
  EXPECT_NE(said.find(want), std::string::npos) << said;
  EXPECT_NE(said.find("exited on signal 6"), std::string::npos) << said;
}

TEST_P(MpiErrors, SettingsThatDifferAreRefused) {
  const int bad = GetParam() + 1;
  const test::Finished finished = run(3, {"differ", std::to_string(bad)});
  EXPECT_NE(finished.status, 0);
  EXPECT_NE(
      finished.out.find("rank " + std::to_string(bad) + " of 3: context: 9, the leader has 8"),
      std::string::npos)
      << finished.out;
}
INSTANTIATE_TEST_SUITE_P(Ranks, MpiErrors, ::testing::Values(0, 1));

}  // namespace
}  // namespace leq
