// Tools with --tp: what several ranks print is what one does, as threads and as processes.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models_fixture.h"
#include "shared_data.h"
#include "tools/mpirun.h"
#include "tools/tool_runner.h"

namespace leq {
namespace {

using test::Finished;

const std::string kRun = LEQ_TOOLS_DIR "/leq-run";

class RunRanks : public testing::Test {
 protected:
  void SetUp() override {
    const auto shared = test::shared_path("models/storyteller");
    if (!shared) GTEST_SKIP() << "shared/models/storyteller is not here";
    model_ = test::quantized(*shared, "int8");
  }

  std::vector<std::string> story(const std::string& ranks) const {
    return {kRun, "-m", model_, "-p", "Once upon a time", "-s", "5", "-n", "40",
            "-t", "2",  "--tp", ranks};
  }
  test::TemporaryFolder own_;
  std::string model_;
};

TEST_F(RunRanks, TellOneStory) {
  const Finished alone = test::run(story("1"), "");
  ASSERT_EQ(alone.status, 0) << alone.err;
  ASSERT_GT(alone.out.size(), 60u);
  for (const char* ranks : {"2", "3", "8"}) {
    const Finished ranked = test::run(story(ranks), "");
    EXPECT_EQ(ranked.status, 0) << ranked.err;
    EXPECT_EQ(ranked.out, alone.out) << ranks << " ranks";
  }
}

TEST_F(RunRanks, ProcessesTellTheStoryToo) {
  if (const std::string why = test::no_mpi(); !why.empty()) GTEST_SKIP() << why;
  const Finished alone = test::run(story("1"), "");
  ASSERT_EQ(alone.status, 0) << alone.err;
  for (const int ranks : {2, 3}) {
    const Finished ranked = test::run_by_mpi(own_ / "", ranks, story(std::to_string(ranks)));
    EXPECT_EQ(ranked.status, 0) << ranked.err;
    // mpirun gives a process a terminal, where leq-run ends its line.
    EXPECT_EQ(ranked.out, alone.out + "\n") << ranks << " processes";
  }
}

TEST_F(RunRanks, RefuseAnotherNumberOfProcesses) {
  if (const std::string why = test::no_mpi(); !why.empty()) GTEST_SKIP() << why;
  const Finished ranked = test::run_by_mpi(own_ / "", 2, story("3"));
  EXPECT_NE(ranked.status, 0);
  EXPECT_NE(ranked.err.find("--tp 3: mpirun started 2 processes"), std::string::npos) << ranked.err;
}

TEST_F(RunRanks, AreRefusedOnAGpu) {
  std::vector<std::string> words = story("2");
  words.insert(words.end(), {"-dev", "cuda"});
  const Finished ranked = test::run(words, "");
  EXPECT_EQ(ranked.status, 1);
  EXPECT_NE(ranked.err.find("--tp 2: several ranks compute on the CPU"), std::string::npos)
      << ranked.err;
}

}  // namespace
}  // namespace leq
