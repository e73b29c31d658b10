// Prompts saved in files: which files are restored or refused, and replies that are the same.
#include "engine/prompt_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/generator.h"
#include "format/leq_layout.h"
#include "models_fixture.h"
#include "runtime/make_backend.h"
#include "shared_data.h"
#include "temporary_folder.h"

namespace leq {
namespace {

SavedPrompt small_prompt() {
  SavedPrompt prompt;
  prompt.owner = {0x0123456789abcdefull, KvType::f16, KvType::int8};
  prompt.tokens = {5, 6, 7, 8, 9};
  for (int i = 0; i < 40; ++i) prompt.kv.push_back(static_cast<std::byte>(i * 7));
  return prompt;
}

TEST(PromptFile, ComesBackAsItWas) {
  test::TemporaryFolder folder;
  const auto path = folder.path() / "prompt.cache";
  const SavedPrompt written = small_prompt();
  write_prompt_file(path, written);
  const SavedPrompt read = read_prompt_file(path);
  EXPECT_EQ(read.owner, written.owner);
  EXPECT_EQ(read.tokens, written.tokens);
  EXPECT_EQ(read.kv, written.kv);
}

// Checks byte by byte that the file has the format described in the header.
TEST(PromptFile, HasTheBytesThatItsPageSays) {
  const std::vector<std::byte> bytes = prompt_file_bytes(small_prompt());
  ASSERT_EQ(bytes.size(), 48u + 5 * 4 + 40);
  EXPECT_EQ(std::memcmp(bytes.data(), "LEQPRM01", 8), 0);
  const auto number = [&](std::size_t offset, std::size_t size) {
    std::uint64_t value = 0;
    for (std::size_t i = size; i-- > 0;)
      value = value << 8 | static_cast<unsigned>(bytes[offset + i]);
    return value;
  };
  EXPECT_EQ(number(8, 8), checksum(std::span(bytes).subspan(16)));
  EXPECT_EQ(number(16, 8), 0x0123456789abcdefull);
  EXPECT_EQ(number(24, 4), static_cast<std::uint64_t>(KvType::f16));
  EXPECT_EQ(number(28, 4), static_cast<std::uint64_t>(KvType::int8));
  EXPECT_EQ(number(32, 8), 5u);
  EXPECT_EQ(number(40, 8), 40u);
  EXPECT_EQ(number(48, 4), 5u);
  EXPECT_EQ(number(69, 1), 7u);
}

// The type is unknown, or valid only in its lowest byte; the checksum is correct.
TEST(PromptFile, UnknownKvTypesAreRefused) {
  for (const std::size_t offset : {24, 28}) {
    for (const std::uint32_t type :
         {static_cast<std::uint32_t>(kKvSchemes.size()), 200u, 256u, 0x80000001u}) {
      std::vector<std::byte> bytes = prompt_file_bytes(small_prompt());
      std::memcpy(bytes.data() + offset, &type, sizeof type);
      const std::uint64_t sum = checksum(std::span(bytes).subspan(16));
      std::memcpy(bytes.data() + 8, &sum, sizeof sum);
      EXPECT_THROW(parse_prompt_file(bytes, "typed"), Error) << offset << " " << type;
    }
  }
}

TEST(PromptFile, EveryBeginningAndEveryFlippedBitIsRefused) {
  const std::vector<std::byte> whole = prompt_file_bytes(small_prompt());
  ASSERT_NO_THROW(parse_prompt_file(whole, "whole"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(parse_prompt_file(std::span(whole).first(size), "cut"), Error) << size;
  }
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::vector<std::byte> bytes = whole;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_THROW(parse_prompt_file(bytes, "flipped"), Error) << bit;
  }
  std::vector<std::byte> longer = whole;
  longer.push_back({});
  EXPECT_THROW(parse_prompt_file(longer, "longer"), Error);
}

// The file is consistent and its checksum is correct, but its sizes overflow.
TEST(PromptFile, SizesThatWrapAreRefused) {
  for (const std::uint64_t tokens : {~0ull, ~0ull / 4 + 1, 1ull << 62, 1ull << 40}) {
    std::vector<std::byte> bytes = prompt_file_bytes(small_prompt());
    std::memcpy(bytes.data() + 32, &tokens, sizeof tokens);
    const std::uint64_t sum = checksum(std::span(bytes).subspan(16));
    std::memcpy(bytes.data() + 8, &sum, sizeof sum);
    EXPECT_THROW(parse_prompt_file(bytes, "wraps"), Error) << tokens;
  }
}

TEST(PromptFile, SeveralInARowAreToldApart) {
  std::vector<std::byte> row;
  std::vector<std::vector<std::byte>> expected;
  for (const std::size_t tokens : {5u, 0u, 9u}) {
    SavedPrompt prompt = small_prompt();
    prompt.tokens.resize(tokens);
    expected.push_back(prompt_file_bytes(prompt));
    row.insert(row.end(), expected.back().begin(), expected.back().end());
  }
  const auto parts = split_prompt_files(row, "row");
  ASSERT_EQ(parts.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::ranges::equal(parts[i], expected[i])) << i;
  const std::size_t ends[] = {0, expected[0].size(), expected[0].size() + expected[1].size()};
  for (std::size_t size = 0; size < row.size(); ++size) {
    const auto cut = std::span(row).first(size);
    if (const auto end = std::ranges::find(ends, size); end != std::end(ends)) {
      EXPECT_EQ(split_prompt_files(cut, "cut").size(), static_cast<std::size_t>(end - ends));
    } else {
      EXPECT_THROW(split_prompt_files(cut, "cut"), Error) << size;
    }
  }
}

struct SavedCase {
  const char* model;
  KvType kv;
};

class SavedPrompts : public testing::TestWithParam<SavedCase> {
 protected:
  void SetUp() override {
    LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam().model);
    model_.emplace(test::quantized(folder, "int8"), LoadOptions{});
    backend_ = make_backend({.device = "cpu", .threads = 2});
    for (int i = 0; i < 150; ++i) prompt_.push_back(static_cast<Token>(300 + i * 31 % 700));
  }
  std::unique_ptr<Session> session(std::int64_t context) const {
    RunLimits limits;
    limits.context = context;
    limits.key_type = limits.value_type = GetParam().kv;
    limits.output_tokens = 1 + kMaxDraftTokens;
    return std::make_unique<Session>(*model_, *backend_, resolve_limits(limits, model_->config()));
  }
  FinishedReply reply(Generator& generator, std::span<const Token> prompt) const {
    ReplyRequest request;
    request.prompt = prompt;
    request.stop.max_tokens = 40;
    return generator.generate(request);
  }
  Generator generator(Session& session) const {
    SamplingSettings settings;
    settings.seed = 11;
    return {session, model_->tokenizer(), {.sampling = settings}};
  }

  std::optional<Model> model_;
  std::unique_ptr<Backend> backend_;
  std::vector<Token> prompt_;
};

TEST_P(SavedPrompts, TheReplyIsTheSameAndTheCommonBeginningIsNotFed) {
  const auto first_session = session(512), second_session = session(256);
  Generator first = generator(*first_session);
  const FinishedReply expected = reply(first, prompt_);
  const SavedPrompt saved = first.save_prompt(prompt_);
  EXPECT_EQ(saved.tokens, prompt_);

  Generator second = generator(*second_session);  // with another context size
  ASSERT_TRUE(second.load_prompt(saved, "file"));
  const FinishedReply again = reply(second, prompt_);
  EXPECT_EQ(again.cached_tokens, 149);
  EXPECT_EQ(again.tokens, expected.tokens);

  std::vector<Token> other(prompt_.begin(), prompt_.begin() + 101);
  other.insert(other.end(), {1000, 1001, 1002});
  const auto plain_session = session(256), third_session = session(256);
  Generator plain = generator(*plain_session), third = generator(*third_session);
  ASSERT_TRUE(third.load_prompt(saved, "file"));
  const FinishedReply with = reply(third, other);
  EXPECT_EQ(with.cached_tokens, 101);
  EXPECT_EQ(with.tokens, reply(plain, other).tokens);
}

TEST_P(SavedPrompts, WhatDoesNotFitIsLeft) {
  const auto large = session(512), small = session(128);
  Generator first = generator(*large), second = generator(*small);
  reply(first, prompt_);
  EXPECT_FALSE(second.load_prompt(first.save_prompt(prompt_), "file"));
  EXPECT_GT(reply(second, std::span(prompt_).first(20)).tokens.size(), 0u);
  // This session has cached nothing, so the saved prompt has no tokens.
  EXPECT_TRUE(generator(*session(128)).save_prompt(prompt_).tokens.empty());
}

TEST_P(SavedPrompts, WhatIsNotOfThisModelIsRefused) {
  const auto own = session(512);
  Generator first = generator(*own);
  reply(first, prompt_);
  const SavedPrompt good = first.save_prompt(prompt_);
  const std::vector<std::function<void(SavedPrompt&)>> damages = {
      [](SavedPrompt& saved) { saved.tokens[3] = 1 << 20; },
      [](SavedPrompt& saved) { saved.tokens[3] = -1; },
      [](SavedPrompt& saved) { saved.tokens.pop_back(); },
      [](SavedPrompt& saved) { saved.kv.pop_back(); },
      [](SavedPrompt& saved) { saved.kv[9] = std::byte{7}; },  // the type of keys
      [](SavedPrompt& saved) { saved.kv.clear(); }};
  for (std::size_t i = 0; i < damages.size(); ++i) {
    SavedPrompt bad = good;
    damages[i](bad);
    EXPECT_THROW(first.load_prompt(bad, "file"), Error) << i;
  }
  EXPECT_GT(reply(first, prompt_).cached_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(Kv, SavedPrompts,
                         testing::Values(SavedCase{"storyteller", KvType::f16},
                                         SavedCase{"storyteller", KvType::int8},
                                         SavedCase{"storyteller", KvType::simq4},
                                         SavedCase{"qwen3moe-tiny", KvType::f16},
                                         SavedCase{"qwen3moe-tiny", KvType::simq4}));

}  // namespace
}  // namespace leq
