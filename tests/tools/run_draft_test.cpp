// leq-run with a draft model and with prompts saved in files: the text is the same as without them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "models_fixture.h"
#include "quantize/run/quantize.h"
#include "reference/mtp_checkpoint.h"
#include "shared_data.h"
#include "tools/process.h"

namespace leq {
namespace {

namespace fs = std::filesystem;
using test::Finished;

class RunDraft : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("leq_run_draft_") + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    const auto shared = test::shared_path("models/storyteller");
    const auto other = test::shared_path("models/qwen3-tiny");
    if (!shared || !other) GTEST_SKIP() << "shared/models is not here";
    model_ = test::quantized(*shared, "int8");
    coarse_ = test::quantized(*shared, "int4-g64");
    stranger_ = test::quantized(*other, "int8");
  }
  void TearDown() override { fs::remove_all(folder_); }

  Finished run(const std::vector<std::string>& words) const { return run_with(model_, words); }
  static Finished run_with(const std::string& model, const std::vector<std::string>& words) {
    std::vector<std::string> command = {LEQ_TOOLS_DIR "/leq-run", "-m", model, "-t", "1"};
    command.insert(command.end(),
                   {"--raw", "-p", "Once upon a time there was a little cat and a dog"});
    command.insert(command.end(), {"-s", "5", "-n", "60"});
    command.insert(command.end(), words.begin(), words.end());
    return test::run(command, "");
  }
  static bool says(const Finished& run, const std::string& text) {
    return run.err.find(text) != std::string::npos;
  }

  fs::path folder_;
  std::string model_, coarse_, stranger_;
};

TEST_F(RunDraft, ADraftModelChangesNoToken) {
  const Finished plain = run({"--speculate", "off"});
  ASSERT_EQ(plain.status, 0) << plain.err;
  for (const std::string& draft : {coarse_, model_}) {
    const Finished with = run({"-md", draft, "--draft-max", "4", "-v"});
    EXPECT_EQ(with.status, 0) << with.err;
    EXPECT_EQ(with.out, plain.out);
    EXPECT_TRUE(says(with, "draft " + draft)) << with.err;
    EXPECT_TRUE(says(with, "of the draft model's")) << with.err;
  }
  EXPECT_EQ(run({"-md", coarse_, "--draft-max", "0"}).out, plain.out);
}

TEST_F(RunDraft, WhatCannotDraftIsRefused) {
  const Finished stranger = run({"-md", stranger_});
  EXPECT_EQ(stranger.status, 1);
  EXPECT_TRUE(says(stranger, "a draft model needs the same vocabulary")) << stranger.err;
  const Finished missing = run({"-md", folder_ / "none.leq"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_TRUE(says(missing, "-md")) << missing.err;
  const Finished both = run({"-md", coarse_, "--speculate", "off"});
  EXPECT_TRUE(says(both, "-md and --speculate off contradict each other")) << both.err;
}

// Drafts of the model's own multi-token prediction head, also on several ranks.
TEST_F(RunDraft, AHeadInTheFileChangesNoToken) {
  QuantizeOptions options;
  options.type = "int8";
  options.threads = 1;
  const fs::path model = folder_ / "mtp.leq";
  quantize_checkpoint(test::write_mtp_checkpoint(folder_ / "hf", true, true), model, options);
  const auto write = [&](std::vector<std::string> words) {
    std::vector<std::string> command = {LEQ_TOOLS_DIR "/leq-run", "-m", model, "-p", "abcdefg"};
    command.insert(command.end(), {"-s", "5", "-n", "60", "-no-cnv", "-v"});
    command.insert(command.end(), words.begin(), words.end());
    return test::run(command, "");
  };
  const Finished plain = write({"--speculate", "off", "-t", "1"});
  ASSERT_EQ(plain.status, 0) << plain.err;
  const Finished drafted = write({"--speculate", "mtp", "-t", "1"});
  EXPECT_EQ(drafted.out, plain.out) << drafted.err;
  EXPECT_TRUE(says(drafted, "of the draft model's")) << drafted.err;
  for (const char* how : {"auto", "mtp"}) {
    const Finished ranks = write({"--speculate", how, "-t", "2", "--tp", "2"});
    EXPECT_EQ(ranks.out, plain.out) << ranks.err;
  }
  const Finished none = run({"--speculate", "mtp"});
  EXPECT_EQ(none.status, 1);
  EXPECT_TRUE(says(none, "has no head of multi-token prediction")) << none.err;
}

TEST_F(RunDraft, APromptIsKeptInAFile) {
  const std::string file = folder_ / "prompt.cache";
  const Finished plain = run({});
  ASSERT_EQ(plain.status, 0) << plain.err;
  const Finished first = run({"--prompt-cache", file});
  EXPECT_EQ(first.out, plain.out);
  ASSERT_TRUE(fs::exists(file));
  const auto size = fs::file_size(file);
  const Finished second = run({"--prompt-cache", file, "--prompt-cache-ro"});
  EXPECT_EQ(second.out, plain.out);
  EXPECT_TRUE(says(second, "prompt 1 token (")) << second.err;
  EXPECT_EQ(run({"--prompt-cache", file, "--prompt-cache-all"}).out, plain.out);
  EXPECT_GT(fs::file_size(file), size);
}

// The state at the prompt's end is kept too, although the file ends after the reply.
TEST_F(RunDraft, APromptOfAHybridIsKeptWithItsReply) {
  LEQ_SHARED_OR_SKIP(folder, "models/qwen35-tiny");
  const std::string model = test::quantized(folder, "int8"), file = folder_ / "prompt.cache";
  const Finished plain = run_with(model, {});
  ASSERT_EQ(run_with(model, {"--prompt-cache", file, "--prompt-cache-all"}).out, plain.out);
  const Finished again = run_with(model, {"--prompt-cache", file, "--prompt-cache-all"});
  EXPECT_EQ(again.out, plain.out);
  EXPECT_TRUE(says(again, "prompt 1 token (")) << again.err;
}

TEST_F(RunDraft, AFileOfAnotherRunIsToldAndLeftOut) {
  const std::string file = folder_ / "prompt.cache";
  ASSERT_EQ(run({"--prompt-cache", file}).status, 0);
  const auto size = fs::file_size(file);
  const auto expect_told = [&](const std::string& model, std::vector<std::string> words,
                               const std::string& text) {
    const Finished plain = run_with(model, words);
    words.insert(words.end(), {"--prompt-cache", file, "--prompt-cache-ro"});
    const Finished with = run_with(model, words);
    EXPECT_EQ(with.status, 0) << with.err;
    EXPECT_EQ(with.out, plain.out);
    EXPECT_TRUE(says(with, text)) << with.err;
    EXPECT_EQ(fs::file_size(file), size);
  };
  expect_told(coarse_, {}, "another model");
  expect_told(model_, {"-ctk", "int8"}, "KV type or context");
  EXPECT_FALSE(
      says(run({"-ctk", "int8", "--prompt-cache", file, "--prompt-cache-ro"}), "types of layers"));
  std::ofstream(file, std::ios::binary) << "LEQPRM01" << std::string(size - 8, 'x');
  expect_told(model_, {}, "by an older version of leq");
}

TEST_F(RunDraft, ADamagedFileIsRefused) {
  const std::string file = folder_ / "prompt.cache";
  ASSERT_EQ(run({"--prompt-cache", file}).status, 0);
  fs::resize_file(file, fs::file_size(file) - 1);
  const Finished cut = run({"--prompt-cache", file});
  EXPECT_EQ(cut.status, 1);
  EXPECT_EQ(cut.out, "");
  EXPECT_TRUE(says(cut, "prompt.cache: the header of a saved prefix at offset")) << cut.err;
  EXPECT_EQ(std::ranges::count(cut.err, '\n'), 1) << cut.err;  // before anything else is printed
  std::ofstream(file) << "a letter";
  EXPECT_EQ(run({"--prompt-cache", file}).status, 1);
  EXPECT_EQ(fs::file_size(file), 8u);  // not overwritten
  const Finished longest = run({"--prompt-cache", std::string(5'000, 'a')});
  EXPECT_EQ(longest.status, 1);
  EXPECT_EQ(std::ranges::count(longest.err, '\n'), 1) << longest.err;
  EXPECT_EQ(run({"--prompt-cache-ro"}).status, 1);
  EXPECT_EQ(run({"--prompt-cache", file, "-cnv"}).status, 1);
}

// The reply was generated with a draft model and is checked without one.
TEST_F(RunDraft, AReceiptIsCheckedByAnotherRun) {
  const std::string receipt = (folder_ / "r.json").string();
  const Finished written = run({"-md", coarse_, "--receipt", receipt});
  ASSERT_EQ(written.status, 0) << written.err;
  const auto check = [&](const std::string& model, const std::string& file) {
    return test::run({LEQ_TOOLS_DIR "/leq-inspect", model, "--check-receipt", file, "-t", "1"}, "");
  };
  const Finished same = check(model_, receipt);
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_NE(same.out.find("all 60 tokens match"), std::string::npos) << same.out;
  const Finished stranger = check(coarse_, receipt);
  EXPECT_EQ(stranger.status, 1);
  EXPECT_TRUE(says(stranger, "of another model")) << stranger.err;

  std::ifstream in(receipt);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  text.replace(text.find("\"seed\":5"), 8, "\"seed\":6");
  const std::string other = (folder_ / "other.json").string();
  std::ofstream(other) << text;
  const Finished changed = check(model_, other);
  EXPECT_EQ(changed.status, 1);
  EXPECT_TRUE(says(changed, "in the receipt, and")) << changed.err;

  const auto bytes = fs::file_size(model_);
  const Finished over = run({"--receipt", model_});
  EXPECT_EQ(over.status, 1);
  EXPECT_EQ(over.out, "");
  EXPECT_EQ(fs::file_size(model_), bytes);
  EXPECT_EQ(run({"--receipt", receipt, "-cnv"}).status, 1);
  EXPECT_EQ(run({"--receipt", receipt, "--grammar", "root ::= \"a\""}).status, 1);
}

}  // namespace
}  // namespace leq
