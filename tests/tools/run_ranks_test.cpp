// Tools with --tp: what several ranks print is what one does, as threads and as processes.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "models_fixture.h"
#include "shared_data.h"
#include "tools/process.h"

namespace leq {
namespace {

namespace fs = std::filesystem;
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
  static std::vector<std::string> by_mpi(const std::string& processes,
                                         const std::vector<std::string>& command) {
    std::vector<std::string> words = {"/usr/bin/mpirun", "--oversubscribe", "--allow-run-as-root",
                                      "-np", processes};
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }
  static bool has_mpi() {
    return fs::exists("/usr/bin/mpirun") && fs::exists(LEQ_BINARY_DIR "/libleq-mpi.so");
  }

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
  if (!has_mpi())
    GTEST_SKIP() << "mpirun or libleq-mpi.so is not here (openmpi-bin, libopenmpi-dev)";
  const Finished alone = test::run(story("1"), "");
  ASSERT_EQ(alone.status, 0) << alone.err;
  for (const char* ranks : {"2", "3"}) {
    const Finished ranked = test::run(by_mpi(ranks, story(ranks)), "");
    EXPECT_EQ(ranked.status, 0) << ranked.err;
    // mpirun gives a process a terminal, where leq-run ends its line.
    EXPECT_EQ(ranked.out, alone.out + "\n") << ranks << " processes";
  }
}

TEST_F(RunRanks, RefuseAnotherNumberOfProcesses) {
  if (!has_mpi())
    GTEST_SKIP() << "mpirun or libleq-mpi.so is not here (openmpi-bin, libopenmpi-dev)";
  const Finished ranked = test::run(by_mpi("2", story("3")), "");
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
