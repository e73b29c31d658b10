// Tests ranks that are processes of mpirun: the suite of all communicators, settings that differ,
// and a rank that fails, dies or does not take part. Skipped without mpirun or MPI.
#include "ranks/communicator.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
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

TEST_P(MpiRanks, MeetTheContractOfCommunicators) {
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

TEST_P(MpiErrors, AMissingRankEndsInATimeout) {
  const test::Finished finished = run(2, {"stay-away", std::to_string(GetParam())});
  EXPECT_NE(finished.status, 0);
  EXPECT_NE(finished.out.find("for the others, for more than 500 ms"), std::string::npos)
      << finished.out;
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

// One of three processes is stopped or killed while the others are in an operation: the others end
// and report this operation. The leader may be the lost process.
class MpiLosses : public ::testing::TestWithParam<std::tuple<const char*, int>> {};
class MpiStops : public MpiLosses {};
class MpiKills : public MpiLosses {};

test::Finished lose(const char* how, int bad, const char* operation) {
  const test::TemporaryFolder own;
  // If a process hangs, mpirun ends all of them at this time limit, which the test then detects.
  return test::run_by_mpi(own.path().string(), 3,
                          {LEQ_MPI_SUITE, how, std::to_string(bad), operation},
                          {"--timeout", "60"});
}

TEST_P(MpiStops, AStoppedProcessIsNamedByTheOthers) {
  if (const std::string why = test::no_mpi(); !why.empty()) GTEST_SKIP() << why;
  const auto [operation, bad] = GetParam();
  const test::Finished finished = lose("stop", bad, operation);
  const std::string said = finished.out + finished.err;
  EXPECT_NE(finished.status, 0);
  EXPECT_EQ(said.find("timeout"), std::string::npos) << said;
  const std::string lost =
      "for rank " + std::to_string(bad) + ", which has given no sign of life for 3000 ms";
  EXPECT_NE(said.find(lost), std::string::npos) << said;
  EXPECT_NE(said.find("of 3: step 7: waits in the "), std::string::npos) << said;
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == bad) continue;
    EXPECT_NE(said.find("rank " + std::to_string(rank) + ": rank "), std::string::npos) << said;
  }
}

TEST_P(MpiKills, AKilledProcessEndsTheOthersWhichNameTheirCalls) {
  if (const std::string why = test::no_mpi(); !why.empty()) GTEST_SKIP() << why;
  const auto [operation, bad] = GetParam();
  const test::Finished finished = lose("kill", bad, operation);
  const std::string said = finished.out + finished.err;
  EXPECT_NE(finished.status, 0);
  EXPECT_EQ(said.find("timeout"), std::string::npos) << said;
  EXPECT_NE(said.find("process rank " + std::to_string(bad)), std::string::npos) << said;
  EXPECT_NE(said.find("exited on signal 9"), std::string::npos) << said;
  // On a busy machine, mpirun may lose the output of one process.
  int heard = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const std::string place = "rank " + std::to_string(rank) + " of 3: step 7: waiting in the ";
    heard += rank != bad && said.find(place) != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(heard, 1) << said;
}

// Each operation with the leader lost one way, and another rank lost the other way.
std::string loss_name(const testing::TestParamInfo<MpiLosses::ParamType>& item) {
  return std::string(std::get<0>(item.param)) + "_of_rank_" +
         std::to_string(std::get<1>(item.param));
}
INSTANTIATE_TEST_SUITE_P(Operations, MpiStops,
                         ::testing::Values(std::tuple{"start", 0}, std::tuple{"gather", 1},
                                           std::tuple{"broadcast", 0}, std::tuple{"barrier", 1},
                                           std::tuple{"agreement", 0}),
                         loss_name);
INSTANTIATE_TEST_SUITE_P(Operations, MpiKills,
                         ::testing::Values(std::tuple{"start", 1}, std::tuple{"gather", 0},
                                           std::tuple{"broadcast", 1}, std::tuple{"barrier", 0},
                                           std::tuple{"agreement", 1}),
                         loss_name);

}  // namespace
}  // namespace leq
