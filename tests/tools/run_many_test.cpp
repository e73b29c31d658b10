// leq-run with many prompts at once: the reply to each line must be that of a single prompt.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "models_fixture.h"
#include "shared_data.h"
#include "tools/process.h"

namespace leq {
namespace {

namespace fs = std::filesystem;
using test::Finished;

const std::string kTool = LEQ_TOOLS_DIR "/leq-run";

class RunMany : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("leq_run_many_") + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    const auto shared = test::shared_path("models/storyteller");
    if (!shared) GTEST_SKIP() << "shared/models/storyteller is not here";
    model_ = test::quantized(*shared, "int8");
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file(const std::string& text, const std::string& name = "prompts.txt") const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  Finished run(std::vector<std::string> words, const std::string& input = "") const {
    std::vector<std::string> command = {kTool, "-m", model_, "-t", "1", "-s", "5", "-n", "20"};
    command.insert(command.end(), words.begin(), words.end());
    return test::run(command, input);
  }

  fs::path folder_;
  std::string model_;
};

TEST_F(RunMany, EachLineGetsTheReplyThatItGetsAlone) {
  const std::vector<std::string> prompts = {"Once upon a time there was a cat",
                                            "Once upon a time there was a dog", "The king"};
  const Finished all = run({"-np", "2", "-f", file(join(prompts, "\n") + "\n"), "-o", "jsonl"});
  ASSERT_EQ(all.status, 0) << all.err;
  const auto lines = split(all.out, "\n");
  ASSERT_EQ(lines.size(), 4u) << all.out;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Json line = parse_json(lines[i], "line");
    const Finished alone = run(
        {"--raw", "-p", prompts[i], "--no-display-prompt", "--speculate", i == 1 ? "off" : "auto"});
    EXPECT_EQ(line.at("text").text() + "\n", alone.out + (alone.out.ends_with('\n') ? "" : "\n"));
    EXPECT_EQ(line.at("prompt").text(), prompts[i]);
    EXPECT_EQ(line.at("index"), static_cast<std::int64_t>(i));
    EXPECT_EQ(line.at("stop").text(), "token_limit");
    EXPECT_EQ(line.at("tokens"), 20);
  }
  EXPECT_NE(all.err.find("3 replies in "), std::string::npos) << all.err;
}

TEST_F(RunMany, TextComesInTheOrderOfThePrompts) {
  const Finished all =
      run({"-np", "4", "-f", "-", "-n", "3"}, "The king\n\n{\"prompt\": \"The\\nqueen\"}\n");
  ASSERT_EQ(all.status, 0) << all.err;
  EXPECT_TRUE(all.out.starts_with("The king")) << all.out;
  EXPECT_NE(all.out.find("\n\nThe\nqueen"), std::string::npos) << all.out;
}

TEST_F(RunMany, WhatIsWrongIsTold) {
  struct Case {
    std::vector<std::string> words;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {{"-np", "2", "-p", "x"}, "-np: is for many prompts at once"},
      {{"-o", "jsonl"}, "-o jsonl: is for many prompts at once"},
      {{"-np", "2", "-cnv", "-f", file("x\n", "one")}, "-np and -cnv contradict each other"},
      {{"-np", "2", "-sys", "x", "-f", file("x\n", "one")}, "-np and -sys contradict each other"},
      {{"-np", "2", "-f", file("x\n{\"text\": 1}\n", "keys")}, "keys:2: expected {\"prompt\""},
      {{"-np", "2", "-f", file("x\n{\n", "json")}, "json:2"},
      {{"-np", "2", "-f", file("\n \n", "empty")}, "empty: expected a prompt in each line"},
      {{"-np", "2", "-c", "64", "-f", file("x\n" + std::string(4000, 'y') + "\n", "long")},
       "long:2: the prompt has "}};
  for (const Case& item : cases) {
    const Finished finished = run(item.words);
    EXPECT_EQ(finished.status, 1) << item.expected;
    EXPECT_NE(finished.err.find(item.expected), std::string::npos) << finished.err;
    EXPECT_EQ(finished.out, "");
  }
}

}  // namespace
}  // namespace leq
