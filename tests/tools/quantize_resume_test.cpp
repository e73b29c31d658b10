// leq-quantize interrupted by Ctrl-C or killed, and resumed: the file is the same as from an
// uninterrupted run.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tools/process.h"
#include "tools/tool_runner.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

using test::Process;
using test::read_bytes;
using test::run_program;
using test::ToolRun;
using Words = std::vector<std::string>;

constexpr int kInterrupted = 130, kKilled = 1000 + SIGKILL;
const std::string kStoryteller = std::string(LEQ_SOURCE_DIR) + "/examples/storyteller";

class QuantizeResume : public testing::Test {
 protected:
  Words words(const Words& flags) const {
    Words all = {kStoryteller, "-o", file(), "--calibration", text_, "--samples", "16", "--length",
                 "64",         "-t", "1"};
    all.insert(all.end(), flags.begin(), flags.end());
    return all;
  }
  std::string file() const { return (folder_ / "model.leq").string(); }

  // Returns the output of an uninterrupted run.
  std::string whole(const Words& flags) const {
    const ToolRun run = run_program("leq-quantize", words(flags));
    EXPECT_EQ(run.status, 0) << run.err;
    const std::string bytes = read_bytes(file());
    fs::remove(file());
    return bytes;
  }

  // Sends the signal as soon as OUTPUT + `sign` exists, and returns how the program ended.
  int stop(const Words& flags, int signal, const std::string& sign, std::string* said = nullptr) {
    Words command = words(flags);
    command.insert(command.begin(), std::string(LEQ_TOOLS_DIR) + "/leq-quantize");
    Process process(command, Process::Input::pipe);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!fs::exists(file() + sign) && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    process.signal(signal);
    const int status = process.finish();
    EXPECT_FALSE(fs::exists(file()));
    if (said != nullptr) *said = process.err;
    return status;
  }

  void expect_resumed(const Words& flags, const std::string& bytes) const {
    const ToolRun run = run_program("leq-quantize", words(flags));
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_TRUE(read_bytes(file()) == bytes) << flags[1];
    // All files that were kept for the next run must be deleted.
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / ""), fs::directory_iterator()), 2);
    fs::remove(file());
  }

  test::TemporaryFolder folder_;
  const std::string text_ =
      folder_.write("text", read_bytes(kStoryteller + "/heldout.txt").substr(0, 2000));
};

TEST_F(QuantizeResume, CalibrationGoesOnBehindTheFinishedBlocks) {
  for (const Words& flags :
       {Words{"--method", "gptq"}, Words{"--method", "smoothquant", "--smooth", "0.5"}}) {
    const std::string bytes = whole(flags);
    std::string said;
    EXPECT_EQ(stop(flags, SIGINT, ".partial/block-00000.leq", &said), kInterrupted);
    EXPECT_NE(said.find("the same command goes on"), std::string::npos) << said;
    EXPECT_EQ(stop(flags, SIGKILL, ".partial/block-00002.leq"), kKilled);
    expect_resumed(flags, bytes);
  }
}

TEST_F(QuantizeResume, OtherSignalsSayTheSameAsCtrlC) {
  const Words flags = {"--method", "gptq"};
  const std::string bytes = whole(flags);
  for (const int signal : {SIGTERM, SIGHUP}) {
    std::string said;
    EXPECT_EQ(stop(flags, signal, ".partial/block-00000.leq", &said), 128 + signal);
    EXPECT_NE(said.find("model.leq.partial: the same command goes on with it"), std::string::npos)
        << said;
    EXPECT_TRUE(fs::exists(file() + ".partial/block-00000.leq"));
    expect_resumed(flags, bytes);
  }
}

// The unquantized model, with which the gate compares, has no name that a killed run could leave.
TEST_F(QuantizeResume, AGateThatIsKilledLeavesTheFileAlone) {
  Words command = words({"--method", "gptq", "--gate"});
  command.insert(command.begin(), std::string(LEQ_TOOLS_DIR) + "/leq-quantize");
  Process process(command, Process::Input::pipe);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!fs::exists(file()) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  process.signal(SIGKILL);
  process.finish();
  if (fs::exists(file() + ".base")) {  // the run's lock
    EXPECT_TRUE(fs::is_empty(file() + ".base"));
    fs::remove(file() + ".base");
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_ / "")) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"model.leq", "text"}));
}

// If no block is finished, the message names no folder.
TEST_F(QuantizeResume, AnEarlyEndNamesNoFolder) {
  std::string said;
  EXPECT_EQ(stop({"--method", "gptq"}, SIGINT, ".partial", &said), kInterrupted);
  const bool kept = fs::exists(file() + ".partial");
  EXPECT_EQ(said.find(".partial") != std::string::npos, kept) << said;
  EXPECT_NE(said.find("leq-quantize: interrupted"), std::string::npos) << said;
}

TEST_F(QuantizeResume, ASearchEndsWithTheSamePlan) {
  const Words flags = {"--search", "--target-bpw", "3.5", "--search-evals", "5", "--group", "64"};
  const std::string bytes = whole(flags);
  // The first interruption is between two candidates, the second between two measurements.
  std::string said;
  EXPECT_EQ(stop(flags, SIGINT, ".search/int2-g64.leq", &said), kInterrupted);
  EXPECT_NE(said.find("the same command goes on"), std::string::npos) << said;
  EXPECT_EQ(stop(flags, SIGKILL, ".search/log.json"), kKilled);
  expect_resumed(flags, bytes);
}

TEST_F(QuantizeResume, ASearchDoesNotTakeCandidatesOfOtherFlags) {
  Words flags = {"--search", "--method", "rtn", "--target-bpw", "3.5", "--group", "64"};
  EXPECT_EQ(stop(flags, SIGINT, ".search/int2-g64.leq"), kInterrupted);
  flags[2] = "absmax";
  const ToolRun run = run_program("leq-quantize", words(flags));
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("other flags"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace leq
