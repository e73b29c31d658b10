// Tests the contents of a draft model's cache, and draft models with another vocabulary.
#include "engine/speculation.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "errors.h"
#include "models_fixture.h"
#include "runtime/make_backend.h"
#include "shared_data.h"

namespace leq {
namespace {

TokenizerSpec spec_of(std::vector<std::string> pieces) {
  TokenizerSpec spec;
  spec.merge_order = MergeOrder::by_id;
  spec.pieces = std::move(pieces);
  spec.types.assign(spec.pieces.size(), TokenType::normal);
  spec.source = "test";
  return spec;
}

std::string difference(std::vector<std::string> model, std::vector<std::string> draft) {
  return test::error_of([&] {
    require_same_vocabulary(Tokenizer(spec_of(std::move(model))), "big.leq",
                            Tokenizer(spec_of(std::move(draft))), "small.leq");
  });
}

TEST(SameVocabulary, TheFirstDifferenceIsNamed) {
  EXPECT_EQ(difference({"a", "b"}, {"a", "b"}), "");
  const std::string other = difference({"a", "b", "c"}, {"a", "x", "y"});
  EXPECT_NE(other.find("small.leq: token 1 is 'x', in big.leq it is 'b'"), std::string::npos)
      << other;
  const std::string fewer = difference({"a", "b", "c"}, {"a", "b"});
  EXPECT_NE(fewer.find("token 2 is '', in big.leq it is 'c'"), std::string::npos) << fewer;
}

class Drafts : public testing::Test {
 protected:
  void SetUp() override {
    LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
    model_.emplace(test::quantized(folder, "int8"), LoadOptions{});
    backend_ = make_backend({.device = "cpu", .threads = 1});
    RunLimits limits;
    limits.context = 256;
    limits.sequences = 2;
    limits.sequence_context = 256;
    limits.batch_tokens = 64;
    limits = resolve_limits(limits, model_->config());
    session_.emplace(*model_, *backend_, draft_limits(limits, model_->config()));
    drafts_.emplace(*session_, model_->config().vocab);
  }

  Reply reply_to(std::vector<Token> prompt) const {
    SamplingSettings settings;
    settings.temperature = 0;
    const auto vocabulary = static_cast<std::size_t>(model_->config().vocab);
    return {model_->tokenizer(), prompt, Sampler(settings, vocabulary, {}), {.context = 256}};
  }
  static std::vector<Token> prompt(std::int64_t count) {
    std::vector<Token> tokens;
    for (std::int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<Token>(300 + i % 97));
    return tokens;
  }
  std::vector<Token> drafted(std::int32_t sequence, Reply& reply, std::int64_t most) {
    std::vector<DraftModel::Writer> writers = {{sequence, &reply, most}};
    drafts_->draft(writers);
    return writers[0].drafts;
  }

  std::optional<Model> model_;
  std::unique_ptr<Backend> backend_;
  std::optional<Session> session_;
  std::optional<DraftModel> drafts_;
};

TEST_F(Drafts, WrongDraftsAreForgotten) {
  Reply reply = reply_to(prompt(20));
  const std::vector<Token> first = drafted(0, reply, 5);
  ASSERT_EQ(first.size(), 5u);
  EXPECT_EQ(session_->cache().length(0), 24);  // the last draft is not fed
  Reply wrong = reply_to(prompt(20));
  wrong.take(first[0]);
  const Token other = first[1] == 305 ? 306 : 305;
  wrong.take(other);
  const std::vector<Token> second = drafted(0, wrong, 2);
  Reply fresh = reply_to(prompt(20));
  fresh.take(first[0]);
  fresh.take(other);
  EXPECT_EQ(drafted(1, fresh, 2), second);
  EXPECT_EQ(session_->cache().length(0), 23);
}

TEST_F(Drafts, LongTextsAreReadInSteps) {
  Reply reply = reply_to(prompt(150));
  EXPECT_TRUE(drafted(0, reply, 3).empty());  // 64 tokens in a step
  EXPECT_TRUE(drafted(0, reply, 3).empty());
  const std::vector<Token> drafts = drafted(0, reply, 3);
  EXPECT_EQ(drafts.size(), 3u);
  const std::vector<Token> all = prompt(150);
  const std::vector<DraftModel::Reader> readers = {{1, std::span(all).first(64)}};
  drafts_->follow(readers);
  EXPECT_EQ(session_->cache().length(1), 64);
  drafts_->leave(0);
  drafts_->leave(1);
  // A sequence with the same prefix reuses its pages.
  EXPECT_EQ(drafted(1, reply, 3), drafts);
}

TEST_F(Drafts, TextsLongerThanTheFreePagesGetNoDrafts) {
  Reply reply = reply_to(prompt(250));
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(drafted(0, reply, 8).empty());  // 258 positions of 256
  Reply first = reply_to(prompt(190));
  std::size_t of_first = 0, of_second = 0;
  for (int i = 0; i < 4; ++i) of_first += drafted(0, first, 2).size();
  EXPECT_GT(of_first, 0u);
  std::vector<Token> stranger(120, 301);
  Reply other = reply_to(stranger);
  for (int i = 0; i < 4; ++i) of_second += drafted(1, other, 20).size();
  EXPECT_EQ(of_second, 0u);  // needs 3 pages, 2 are free
  EXPECT_FALSE(drafts_->error().has_value());
  drafts_->leave(0);
  EXPECT_GT(drafted(1, other, 2).size(), 0u);
}

// A token outside of the draft model's logits makes its backend refuse the step.
TEST_F(Drafts, AFailureEndsDraftingAndFreesTheCache) {
  Reply good = reply_to(prompt(20));
  EXPECT_EQ(drafted(1, good, 3).size(), 3u);
  const auto vocabulary = static_cast<std::size_t>(model_->config().vocab);
  SamplingSettings settings;
  settings.logit_bias = {{static_cast<Token>(vocabulary), 1.0f}};
  Reply bad = {
      model_->tokenizer(), prompt(20), Sampler(settings, vocabulary + 1, {}), {.context = 256}};
  EXPECT_TRUE(drafted(0, bad, 3).empty());
  ASSERT_TRUE(drafts_->error().has_value());
  EXPECT_NE(std::string(drafts_->error()->what()).find(std::to_string(vocabulary)),
            std::string::npos);
  EXPECT_EQ(session_->cache().length(0), 0);
  EXPECT_EQ(session_->cache().length(1), 0);
  EXPECT_TRUE(drafted(1, good, 3).empty());
  drafts_->leave(0);
}

// The large model may have fewer logits than the draft model, whose others are no tokens, or more.
TEST_F(Drafts, ModelsMayHaveOtherNumbersOfLogits) {
  constexpr std::int64_t kFewer = 50;
  const std::int64_t own = model_->config().vocab;
  SamplingSettings settings;
  settings.temperature = 0;
  {
    DraftModel small(*session_, kFewer);
    Reply reply = {
        model_->tokenizer(), prompt(20), Sampler(settings, kFewer, {}), {.context = 256}};
    std::vector<DraftModel::Writer> writers = {{0, &reply, 4}};
    small.draft(writers);
    EXPECT_FALSE(small.error()) << small.error()->what();
    ASSERT_EQ(writers[0].drafts.size(), 4u);
    for (const Token id : writers[0].drafts) EXPECT_LT(id, kFewer);
    small.leave(0);
  }
  DraftModel large(*session_, own + 64);
  settings.logit_bias = {{static_cast<Token>(own), 1.0f}, {static_cast<Token>(own - 1), 1e6f}};
  Reply reply = {model_->tokenizer(),
                 prompt(20),
                 Sampler(settings, static_cast<std::size_t>(own) + 64, {}),
                 {.context = 256}};
  std::vector<DraftModel::Writer> writers = {{0, &reply, 3}};
  large.draft(writers);
  EXPECT_FALSE(large.error()) << large.error()->what();
  EXPECT_EQ(writers[0].drafts, std::vector<Token>(3, static_cast<Token>(own - 1)));
  large.leave(0);
}

}  // namespace
}  // namespace leq
