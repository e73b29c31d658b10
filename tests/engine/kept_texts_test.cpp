// Texts that an engine keeps between runs: the next run generates the same replies and feeds one
// token of each prompt. If the file is invalid, it is refused, and the run is only slower.
#include "engine/saved_prefix.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "engine/engine.h"
#include "errors.h"
#include "models_fixture.h"
#include "runtime/make_backend.h"
#include "temporary_folder.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

const Model& model() {
  static const Model model(
      test::quantized(std::string(LEQ_SOURCE_DIR) + "/examples/storyteller", "int8"), {});
  return model;
}

std::vector<Token> prompt_of(int first, int tokens) {
  std::vector<Token> prompt;
  for (int i = 0; i < tokens; ++i)
    prompt.push_back(static_cast<Token>(300 + (first + i) * 31 % 700));
  return prompt;
}

// A session and its engine, as in one run of a program.
class OneRun {
 public:
  OneRun(KvType type, std::int64_t context)
      : backend_(make_backend({.device = "cpu", .threads = 2})) {
    RunLimits limits;
    limits.context = context;
    limits.sequences = 2;
    limits.sequence_context = context;
    limits.key_type = limits.value_type = type;
    limits.output_tokens = 2 + kMaxDraftTokens;
    session_ =
        std::make_unique<Session>(model(), *backend_, resolve_limits(limits, model().config()));
    engine_ = std::make_unique<Engine>(*session_, model().tokenizer(), EngineOptions{});
  }
  Engine& engine() { return *engine_; }
  PrefixOwner owner() const { return prefix_owner(model(), *session_); }
  EngineReply reply(const std::vector<Token>& prompt) {
    EngineReply ended;
    EngineRequest request;
    request.prompt = prompt;
    request.sampling.seed = 5;
    request.stop.max_tokens = 30;
    request.on_end = [&](const EngineReply& reply) { ended = reply; };
    engine_->submit(std::move(request));
    while (engine_->step()) {
    }
    return ended;
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Engine> engine_;
};

class KeptTextsTest : public testing::TestWithParam<KvType> {
 protected:
  test::TemporaryFolder folder_;
  fs::path file_ = folder_.path() / "texts";
};

TEST_P(KeptTextsTest, TheNextRunWritesTheSameAndFeedsOneToken) {
  const auto first = prompt_of(0, 150), second = prompt_of(1000, 90);
  std::vector<Token> begins_alike(first.begin(), first.begin() + 100);
  begins_alike.resize(140, 999);
  OneRun one(GetParam(), 1024);
  std::vector<EngineReply> expected;
  for (const auto& prompt : {first, second, begins_alike}) expected.push_back(one.reply(prompt));
  const KeptTexts written = write_kept_texts(file_, one.engine(), one.owner());
  EXPECT_EQ(written.texts, 3);
  OneRun two(GetParam(), 1024);
  const KeptTexts read = read_kept_texts(file_, two.engine(), two.owner());
  EXPECT_EQ(read.texts, 3);
  EXPECT_EQ(read.tokens, written.tokens);
  std::size_t i = 0;
  for (const auto& prompt : {first, second, begins_alike}) {
    const EngineReply again = two.reply(prompt);
    EXPECT_EQ(again.tokens, expected[i].tokens);
    EXPECT_EQ(again.cached_tokens, std::ssize(prompt) - 1) << i;
    EXPECT_EQ(again.fed_tokens, 1) << i;
    ++i;
  }
}

TEST_P(KeptTextsTest, ASmallerCacheKeepsWhatWasUsedLast) {
  OneRun one(GetParam(), 1024);
  for (const int first : {0, 1000, 2000, 3000}) one.reply(prompt_of(first, 170));
  write_kept_texts(file_, one.engine(), one.owner());
  OneRun two(GetParam(), 256);
  read_kept_texts(file_, two.engine(), two.owner());
  EXPECT_EQ(two.reply(prompt_of(3000, 170)).cached_tokens, 169);
  EXPECT_EQ(two.reply(prompt_of(0, 170)).cached_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(Kv, KeptTextsTest,
                         testing::Values(KvType::f16, KvType::int8, KvType::simq4));

class KeptFiles : public testing::Test {
 protected:
  void write() {
    OneRun run(KvType::f16, 1024);
    run.reply(prompt_of(0, 150));
    write_kept_texts(file_, run.engine(), run.owner());
  }
  std::string error_of(const PrefixOwner& owner, OneRun& run) {
    return test::error_of([&] { read_kept_texts(file_, run.engine(), owner); });
  }
  test::TemporaryFolder folder_;
  fs::path file_ = folder_.path() / "texts";
};

TEST_F(KeptFiles, OfOthersOrDamagedAreRefused) {
  write();
  OneRun run(KvType::f16, 1024);
  PrefixOwner other = run.owner();
  other.model ^= 1;
  EXPECT_NE(error_of(other, run).find("another model"), std::string::npos);
  other = run.owner();
  other.layout += "x";
  EXPECT_NE(error_of(other, run).find("KV type or context"), std::string::npos);
  const std::string whole = read_file(file_, 1 << 30);
  for (const std::size_t at : {std::size_t{3}, std::size_t{9}, std::size_t{60}, whole.size() - 1}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    std::ofstream(file_, std::ios::binary) << damaged;
    EXPECT_NE(error_of(run.owner(), run), "") << at;
    std::ofstream(file_, std::ios::binary) << whole.substr(0, at);
    EXPECT_NE(error_of(run.owner(), run), "") << at;
  }
  EXPECT_EQ(run.reply(prompt_of(0, 150)).cached_tokens, 0);
  std::ofstream(file_, std::ios::binary) << whole;
  EXPECT_EQ(error_of(run.owner(), run), "");
  EXPECT_EQ(run.reply(prompt_of(0, 150)).cached_tokens, 149);
}

TEST_F(KeptFiles, NothingKeptLeavesNoFile) {
  OneRun run(KvType::f16, 1024);
  EXPECT_EQ(read_kept_texts(file_, run.engine(), run.owner()).texts, 0);
  write();
  write_kept_texts(file_, run.engine(), run.owner());
  EXPECT_FALSE(fs::exists(file_));
}

TEST_F(KeptFiles, TextsThatFillTheCacheAreKept) {
  OneRun run(KvType::f16, 256);
  ASSERT_EQ(run.engine().pages(), 5);
  run.reply(prompt_of(0, 200));  // 229 tokens with the reply's fed ones, in four pages
  run.reply(prompt_of(1000, 20));
  const KeptTexts written = write_kept_texts(file_, run.engine(), run.owner());
  EXPECT_EQ(written.texts, 2);
  EXPECT_EQ(written.tokens, 229 + 49);
  OneRun next(KvType::f16, 256);
  EXPECT_EQ(read_kept_texts(file_, next.engine(), next.owner()).texts, 2);
  EXPECT_EQ(next.reply(prompt_of(0, 200)).cached_tokens, 199);
}

TEST_F(KeptFiles, APrefixWaitsForTheRunningReplies) {
  OneRun one(KvType::f16, 1024), two(KvType::f16, 256);
  const auto prompt = prompt_of(0, 150);
  one.reply(prompt);
  const SavedPrefix saved = one.engine().save_prefix(prompt);
  ASSERT_EQ(saved.tokens, prompt);
  EngineReply running;
  EngineRequest request;
  request.prompt = prompt_of(2000, 200);
  request.stop.max_tokens = 30;
  request.on_end = [&](const EngineReply& reply) { running = reply; };
  two.engine().submit(std::move(request));
  two.engine().step();
  EXPECT_FALSE(two.engine().load_prefix(saved, "saved")) << "one page of five is free";
  while (two.engine().step()) {
  }
  EXPECT_EQ(running.tokens.size(), 30u);
  EXPECT_TRUE(two.engine().load_prefix(saved, "saved"));
  EXPECT_EQ(two.reply(prompt).cached_tokens, 149);
}

}  // namespace
}  // namespace leq
