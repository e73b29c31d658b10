// Tools with --tp: several ranks, as threads or as processes, must print the same as one.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "faults/block.h"
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
    return {kRun, "-m", model_, "--raw", "-p", "Once upon a time", "-s", "5", "-n",
            "40", "-t", "2",    "--tp",  ranks};
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
    // mpirun gives a process a terminal, so leq-run ends its line.
    EXPECT_EQ(ranked.out, alone.out + "\n") << ranks << " processes";
  }
}

// A saved prompt is read by as many ranks as wrote it; others say so and feed the prompt.
TEST_F(RunRanks, KeepAndReadAPromptCache) {
  for (const std::string ranks : {"1", "2", "3"}) {
    const std::string file = own_ / ("cache" + ranks);
    const auto with = [&](const std::string& count, bool writes) {
      std::vector<std::string> words = story(count);
      words.insert(words.end(), {"--prompt-cache", file});
      if (!writes) words.emplace_back("--prompt-cache-ro");
      return test::run(words, "");
    };
    const Finished first = with(ranks, true);
    ASSERT_EQ(first.status, 0) << first.err;
    const Finished again = with(ranks, false);
    EXPECT_EQ(again.out, first.out);
    EXPECT_NE(again.err.find("prompt 1 token ("), std::string::npos) << again.err;
    const Finished other = with(ranks == "2" ? "3" : "2", false);
    EXPECT_EQ(other.status, 0) << other.err;
    EXPECT_EQ(other.out, first.out);
    EXPECT_NE(other.err.find("number of ranks"), std::string::npos) << other.err;
  }
}

// KV types with every kind of codes, and every way of quantizing activations.
struct Measured {
  const char* kv;
  ActChoice act;
};
class PerplexityOfProcesses : public testing::TestWithParam<Measured> {};

TEST_P(PerplexityOfProcesses, IsThatOfOne) {
  if (const std::string why = test::no_mpi(); !why.empty()) GTEST_SKIP() << why;
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const auto [kv, act] = GetParam();
  const test::TemporaryFolder own;
  const std::string text = own / "text";
  std::ofstream(text) << "Once upon a time there was a little bear who lived in the woods. One day "
                         "the bear found a red ball under a big tree, and it was very happy. The "
                         "bear took the ball to its friend, the fox, and they played all day.";
  const auto words = [&](int ranks) -> std::vector<std::string> {
    return {LEQ_TOOLS_DIR "/leq-perplexity",
            "-m",
            test::quantized(folder, "int8", act),
            "-f",
            text,
            "-c",
            "48",
            "-t",
            "1",
            "-o",
            "json",
            "-ctk",
            kv,
            "-ctv",
            kv,
            "--tp",
            std::to_string(ranks)};
  };
  const Finished alone = test::run(words(1), "");
  ASSERT_EQ(alone.status, 0) << alone.err;
  const Json want = parse_json(alone.out, "the report of one");
  for (const int ranks : {2, 3}) {
    const Finished ranked = test::run_by_mpi(own / "", ranks, words(ranks));
    ASSERT_EQ(ranked.status, 0) << ranked.err;
    const Json found = parse_json(ranked.out, "the report of processes");
    EXPECT_EQ(found.at("nll"), want.at("nll")) << ranks << " processes";
    EXPECT_EQ(found.at("ppl"), want.at("ppl")) << ranks << " processes";
  }
}
INSTANTIATE_TEST_SUITE_P(
    Settings, PerplexityOfProcesses,
    testing::Values(Measured{"f16", ActChoice::automatic}, Measured{"int8", ActChoice::automatic},
                    Measured{"simq4", ActChoice::automatic}, Measured{"f16", ActChoice::none},
                    Measured{"int8", ActChoice::row}, Measured{"simq4", ActChoice::g128},
                    Measured{"f16", ActChoice::tensor}, Measured{"int8", ActChoice::online},
                    Measured{"f16", ActChoice::streaming}),
    [](const auto& item) {
      return std::string(item.param.kv) + "_act" + std::to_string(static_cast<int>(item.param.act));
    });

// Threads and processes must write the same file as one rank.
TEST_F(RunRanks, QuantizeTheFileOfOne) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const std::string source = folder.string();
  const auto words = [&](const std::string& name, const std::string& ranks) {
    return std::vector<std::string>{LEQ_TOOLS_DIR "/leq-quantize",
                                    source,
                                    "-o",
                                    own_ / name,
                                    "-t",
                                    "1",
                                    "--method",
                                    "gptq",
                                    "--type",
                                    "int4-g64",
                                    "--samples",
                                    "3",
                                    "--no-gate",
                                    "--tp",
                                    ranks};
  };
  const Finished alone = test::run(words("one.leq", "1"), "");
  ASSERT_EQ(alone.status, 0) << alone.err;
  const std::string want = read_file(own_ / "one.leq", 1 << 30);
  const Finished threads = test::run(words("threads.leq", "2"), "");
  ASSERT_EQ(threads.status, 0) << threads.err;
  EXPECT_EQ(read_file(own_ / "threads.leq", 1 << 30) == want, true);
  if (const std::string why = test::no_mpi(); !why.empty()) GTEST_SKIP() << why;
  const Finished processes = test::run_by_mpi(own_ / "", 2, words("processes.leq", "2"));
  ASSERT_EQ(processes.status, 0) << processes.err;
  EXPECT_EQ(read_file(own_ / "processes.leq", 1 << 30) == want, true);
}

TEST_F(RunRanks, TheServersRanksAreNoProcesses) {
  if (const std::string why = test::no_mpi(); !why.empty()) GTEST_SKIP() << why;
  const Finished ranked = test::run_by_mpi(
      own_ / "", 2, {LEQ_TOOLS_DIR "/leq-server", "-m", model_, "--port", "0", "--tp", "2"});
  EXPECT_NE(ranked.status, 0);
  EXPECT_NE((ranked.out + ranked.err).find("start it without mpirun"), std::string::npos)
      << ranked.out << ranked.err;
}

TEST_F(RunRanks, RefuseAnotherNumberOfProcesses) {
  if (const std::string why = test::no_mpi(); !why.empty()) GTEST_SKIP() << why;
  const Finished ranked = test::run_by_mpi(own_ / "", 2, story("3"));
  EXPECT_NE(ranked.status, 0);
  EXPECT_NE(ranked.err.find("--tp 3: mpirun started 2 processes"), std::string::npos) << ranked.err;
}

// Returns why a process cannot be killed here; "" if it can.
std::string no_lost_reader() {
  if (std::string_view(LEQ_SANITIZE) != "") return "sanitizers want to be loaded first";
  return test::no_mpi();
}

// Runs a story on two processes; the first read of the model by rank 1 fails as `how` specifies.
struct LostReader {
  explicit LostReader(faults::How how, const std::vector<std::string>& story)
      : block(own.path(), {faults::Call::read_at, how, EIO, 1}) {
    const std::string preloaded = "LD_PRELOAD=" LEQ_FAULT_LIBRARY;
    const std::string variable = std::string(faults::kBlockVariable) + "=" + block.path();
    std::vector<std::string> words = {
        "/bin/sh", "-c",
        "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then exec env \"$0\" \"$@\"; fi; shift; exec \"$@\"",
        preloaded, variable};
    words.insert(words.end(), story.begin(), story.end());
    words.push_back("--no-mmap");
    ended = test::run_by_mpi(own / "", 2, words, {"--timeout", "60"});
  }

  test::TemporaryFolder own;
  faults::Block block;
  Finished ended;
};

TEST_F(RunRanks, AProcessKilledWhileItReadsTheModelEndsTheOther) {
  if (const std::string why = no_lost_reader(); !why.empty()) GTEST_SKIP() << why;
  LostReader lost(faults::How::kill, story("2"));
  const std::string said = lost.ended.out + lost.ended.err;
  EXPECT_EQ(lost.block.get().reached, 1u) << said;
  EXPECT_NE(lost.ended.status, 0);
  EXPECT_NE(said.find("process rank 1"), std::string::npos) << said;
  EXPECT_NE(said.find("exited on signal 9"), std::string::npos) << said;
  EXPECT_EQ(said.find("timeout"), std::string::npos) << said;
  EXPECT_EQ(said.find("there was"), std::string::npos) << said;  // the continuation of the story
}

TEST_F(RunRanks, AProcessThatCannotReadTheModelTellsTheOther) {
  if (const std::string why = no_lost_reader(); !why.empty()) GTEST_SKIP() << why;
  LostReader lost(faults::How::error, story("2"));
  const std::string said = lost.ended.out + lost.ended.err;
  EXPECT_EQ(lost.block.get().reached, 1u) << said;
  EXPECT_NE(lost.ended.status, 0);
  EXPECT_NE(said.find("rank 1 of 2: "), std::string::npos) << said;
  EXPECT_NE(said.find("cannot read at offset 0: Input/output error"), std::string::npos) << said;
  EXPECT_EQ(said.find("timeout"), std::string::npos) << said;
}

// This is checked before ranks start, so that only one error is printed.
TEST_F(RunRanks, RefuseASearch) {
  const Finished search =
      test::run({LEQ_TOOLS_DIR "/leq-quantize", LEQ_SOURCE_DIR "/examples/storyteller", "-o",
                 own_ / "x.leq", "--search", "--target-bpw", "4.25", "--tp", "2"},
                "");
  EXPECT_EQ(search.status, 1);
  EXPECT_NE(search.err.find("error: --tp 2: a search is one rank's work"), std::string::npos)
      << search.err;
}

TEST_F(RunRanks, AreNoProcessesOnGpus) {
  if (const std::string why = test::no_mpi(); !why.empty()) GTEST_SKIP() << why;
  std::vector<std::string> words = story("2");
  words.insert(words.end(), {"-dev", "sim"});
  const Finished ranked = test::run_by_mpi(own_ / "", 2, words);
  EXPECT_NE(ranked.status, 0);
  EXPECT_NE((ranked.out + ranked.err).find("threads of one process"), std::string::npos)
      << ranked.err;
}

}  // namespace
}  // namespace leq
