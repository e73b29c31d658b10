// Prompts saved in files: which files are restored or refused, and replies that are the same.
#include "engine/saved_prefix.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/generator.h"
#include "format/leq_layout.h"
#include "models_fixture.h"
#include "reference/family_golden.h"
#include "runtime/make_backend.h"
#include "shared_data.h"
#include "temporary_folder.h"

namespace leq {
namespace {

const PrefixOwner kOwner = {0x0123456789abcdefull, "CPU pages 1, keys f16"};

SavedPrefix small_prefix() {
  SavedPrefix prefix;
  prefix.tokens = {5, 6, 7, 8, 9};
  for (int i = 0; i < 40; ++i) prefix.kv.push_back(static_cast<std::byte>(i * 7));
  for (const std::int64_t position : {2, 4}) {
    prefix.states.push_back(
        {position, std::vector<std::byte>(8, static_cast<std::byte>(position))});
  }
  return prefix;
}

SavedPrefix without_states() {
  SavedPrefix prefix = small_prefix();
  prefix.tokens = {1};
  prefix.states.clear();
  return prefix;
}

std::vector<std::byte> joined(std::initializer_list<SavedPrefix> prefixes) {
  std::vector<std::byte> bytes = prefix_header_bytes(kOwner);
  for (const SavedPrefix& prefix : prefixes) {
    const std::vector<std::byte> entry = prefix_entry_bytes(prefix);
    bytes.insert(bytes.end(), entry.begin(), entry.end());
  }
  return bytes;
}
// A file of two prefixes.
std::vector<std::byte> whole_file() { return joined({small_prefix(), without_states(), {}}); }

void read_all(std::span<const std::byte> bytes) {
  const PrefixReader reader(bytes, "test");
  for (std::size_t i = 0; i < reader.size(); ++i) (void)reader.read(i);
}

void expect_same(const SavedPrefix& read, const SavedPrefix& written) {
  EXPECT_EQ(read.tokens, written.tokens);
  EXPECT_EQ(read.kv, written.kv);
  ASSERT_EQ(read.states.size(), written.states.size());
  for (std::size_t i = 0; i < read.states.size(); ++i) {
    EXPECT_EQ(read.states[i].position, written.states[i].position);
    EXPECT_EQ(read.states[i].bytes, written.states[i].bytes);
  }
}

TEST(SavedPrefixFile, ComesBackAsItWas) {
  test::TemporaryFolder folder;
  const auto path = folder.path() / "prompt.cache";
  {
    PrefixWriter unfinished(path, kOwner);
    unfinished.add(small_prefix());
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  PrefixWriter writer(path, kOwner);
  writer.add(small_prefix());
  writer.add(without_states());
  writer.commit();
  const PrefixFile file(path);
  EXPECT_EQ(file->owner(), kOwner);
  ASSERT_EQ(file->size(), 2u);
  expect_same(file->read(0), small_prefix());
  expect_same(file->read(1), without_states());
}

// Checks byte by byte that the file has the format described in the header.
TEST(SavedPrefixFile, HasTheBytesThatItsPageSays) {
  const std::vector<std::byte> bytes = whole_file();
  const std::size_t first = 32 + kOwner.layout.size(), of_first = 40 + 5 * 4 + 2 * 8 + 40 + 2 * 8;
  const std::size_t second = first + of_first, end = second + 40 + 4 + 40;
  ASSERT_EQ(bytes.size(), end + 40);
  EXPECT_EQ(std::memcmp(bytes.data(), "LEQPFX01", 8), 0);
  const auto number = [&](std::size_t offset, std::size_t size) {
    std::uint64_t value = 0;
    for (std::size_t i = size; i-- > 0;)
      value = value << 8 | static_cast<unsigned>(bytes[offset + i]);
    return value;
  };
  const auto sum = [&](std::size_t from, std::size_t to) {
    return checksum(std::span(bytes).subspan(from, to - from));
  };
  EXPECT_EQ(number(8, 8), sum(16, first));
  EXPECT_EQ(number(16, 8), 0x0123456789abcdefull);
  EXPECT_EQ(number(24, 8), kOwner.layout.size());
  EXPECT_EQ(std::memcmp(bytes.data() + 32, kOwner.layout.data(), kOwner.layout.size()), 0);
  EXPECT_EQ(number(first, 8), sum(first + 8, second));
  EXPECT_EQ(number(first + 8, 8), 5u);
  EXPECT_EQ(number(first + 16, 8), 40u);
  EXPECT_EQ(number(first + 24, 8), 2u);
  EXPECT_EQ(number(first + 32, 8), 8u);
  EXPECT_EQ(number(first + 40 + 4, 4), 6u);                 // the second token
  EXPECT_EQ(number(first + 40 + 20 + 8, 8), 4u);            // the second position
  EXPECT_EQ(number(first + 40 + 20 + 16 + 1, 1), 7u);       // keys and values
  EXPECT_EQ(number(first + 40 + 20 + 16 + 40 + 8, 1), 4u);  // the second state
  EXPECT_EQ(number(second, 8), sum(second + 8, end));
  EXPECT_EQ(number(end, 8), sum(end + 8, bytes.size()));
  for (std::size_t at = end + 8; at < bytes.size(); at += 8) EXPECT_EQ(number(at, 8), 0u);
}

TEST(SavedPrefixFile, EveryBeginningAndEveryFlippedBitIsRefused) {
  const std::vector<std::byte> whole = whole_file();
  ASSERT_NO_THROW(read_all(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(read_all(std::span(whole).first(size)), Error) << size;
  }
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::vector<std::byte> bytes = whole;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_THROW(read_all(bytes), Error) << bit;
  }
  std::vector<std::byte> longer = whole;
  longer.push_back({});
  EXPECT_THROW(read_all(longer), Error);
}

// The checksum is correct, but sizes overflow, or states contradict the tokens.
TEST(SavedPrefixFile, NumbersThatContradictEachOtherAreRefused) {
  const std::size_t first = prefix_header_bytes(kOwner).size();
  for (const std::size_t field : {8u, 16u, 24u, 32u}) {
    for (const std::uint64_t size : {~0ull, ~0ull / 4 + 1, ~0ull / 8 + 1, 1ull << 62, 1ull << 40}) {
      std::vector<std::byte> bytes = whole_file();
      std::memcpy(bytes.data() + first + field, &size, sizeof size);
      EXPECT_THROW(read_all(bytes), Error) << field << " " << size;
    }
  }
  for (const auto& [a, b] : {std::pair{0, 4}, {-1, 4}, {4, 4}, {4, 2}, {2, 5}, {2, 1 << 30}}) {
    SavedPrefix prefix = small_prefix();
    prefix.states[0].position = a;
    prefix.states[1].position = b;
    EXPECT_THROW(read_all(joined({prefix, {}})), Error) << a << " " << b;
  }
}

TEST(SavedPrefixFile, OfAnotherOwnerOrFormatHasAReason) {
  const std::vector<std::byte> whole = whole_file();
  const PrefixReader reader(whole, "test");
  EXPECT_EQ(reader.reason_against(kOwner), "");
  PrefixOwner other = kOwner;
  other.model ^= 1;
  EXPECT_NE(reader.reason_against(other).find("another model"), std::string::npos);
  other = kOwner;
  other.layout = "GPU pages 1, keys f16";
  const std::string reason = reader.reason_against(other);
  EXPECT_NE(reason.find(kOwner.layout), std::string::npos) << reason;
  EXPECT_NE(reason.find(other.layout), std::string::npos) << reason;
  const std::string old = "LEQPRM01 and anything else";
  const PrefixReader of_old(std::as_bytes(std::span(old)), "test");
  EXPECT_EQ(of_old.size(), 0u);
  EXPECT_NE(of_old.reason_against(kOwner).find("older version"), std::string::npos);
}

struct SavedCase {
  const char* model;
  KvType kv;
};

class SavedPrefixes : public testing::TestWithParam<SavedCase> {
 protected:
  void SetUp() override {
    LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam().model);
    model_.emplace(test::quantized(folder, "int8"), LoadOptions{});
    backend_ = make_backend({.device = "cpu", .threads = 2});
    for (int i = 0; i < 150; ++i) {
      prompt_.push_back(static_cast<Token>((300 + i * 31 % 700) % (model_->config().vocab - 3)));
    }
  }
  std::unique_ptr<Session> session(std::int64_t context) const {
    RunLimits limits;
    limits.context = std::min(context, model_->config().context);
    limits.key_type = limits.value_type = GetParam().kv;
    limits.output_tokens = 1 + kMaxDraftTokens;
    return std::make_unique<Session>(*model_, *backend_, resolve_limits(limits, model_->config()));
  }
  FinishedReply reply(Generator& generator, std::span<const Token> prompt) const {
    EngineRequest request;
    request.prompt.assign(prompt.begin(), prompt.end());
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

TEST_P(SavedPrefixes, TheReplyIsTheSameAndTheCommonBeginningIsNotFed) {
  const auto first_session = session(512), second_session = session(256);
  Generator first = generator(*first_session);
  const FinishedReply expected = reply(first, prompt_);
  const SavedPrefix saved = first.save_prefix(prompt_);
  EXPECT_EQ(saved.tokens, prompt_);

  Generator second = generator(*second_session);  // with another context size
  ASSERT_TRUE(second.load_prefix(saved, "file"));
  const FinishedReply again = reply(second, prompt_);
  EXPECT_EQ(again.cached_tokens, 149);
  EXPECT_EQ(again.tokens, expected.tokens);

  std::vector<Token> other(prompt_.begin(), prompt_.begin() + 101);
  const auto end = static_cast<Token>(model_->config().vocab);
  other.insert(other.end(), {end - 3, end - 2, end - 1});
  const auto plain_session = session(256), third_session = session(256);
  Generator plain = generator(*plain_session), third = generator(*third_session);
  ASSERT_TRUE(third.load_prefix(saved, "file"));
  const FinishedReply with = reply(third, other);
  EXPECT_EQ(with.cached_tokens, 101);
  EXPECT_EQ(with.tokens, reply(plain, other).tokens);
}

TEST_P(SavedPrefixes, WhatDoesNotFitIsLeft) {
  const auto large = session(512), small = session(128);
  Generator first = generator(*large), second = generator(*small);
  reply(first, prompt_);
  EXPECT_FALSE(second.load_prefix(first.save_prefix(prompt_), "file"));
  EXPECT_GT(reply(second, std::span(prompt_).first(20)).tokens.size(), 0u);
  // This session has cached nothing, so the saved prompt has no tokens.
  EXPECT_TRUE(generator(*session(128)).save_prefix(prompt_).tokens.empty());
}

TEST_P(SavedPrefixes, WhatIsNotOfThisModelIsRefused) {
  const auto own = session(512);
  Generator first = generator(*own);
  reply(first, prompt_);
  const SavedPrefix good = first.save_prefix(prompt_);
  const std::vector<std::function<void(SavedPrefix&)>> damages = {
      [](SavedPrefix& saved) { saved.tokens[3] = 1 << 20; },
      [](SavedPrefix& saved) { saved.tokens[3] = -1; },
      [](SavedPrefix& saved) { saved.tokens.pop_back(); },
      [](SavedPrefix& saved) { saved.kv.pop_back(); },
      [](SavedPrefix& saved) { saved.kv[9] ^= std::byte{7}; },  // the layout
      [](SavedPrefix& saved) { saved.kv.clear(); }};
  for (std::size_t i = 0; i < damages.size(); ++i) {
    SavedPrefix bad = good;
    damages[i](bad);
    EXPECT_THROW(first.load_prefix(bad, "file"), Error) << i;
  }
  EXPECT_GT(reply(first, prompt_).cached_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Kv, SavedPrefixes,
    testing::Values(SavedCase{"storyteller", KvType::f16}, SavedCase{"storyteller", KvType::int8},
                    SavedCase{"storyteller", KvType::simq4},
                    SavedCase{"qwen3moe-tiny", KvType::f16},
                    SavedCase{"qwen3moe-tiny", KvType::simq4}, SavedCase{"gemma-3", KvType::int8},
                    SavedCase{"gpt-oss", KvType::simq4}, SavedCase{"smollm3", KvType::int4},
                    SavedCase{"granite", KvType::simq8}));

// LongRoPE has other keys in contexts above the original one, which is 32 in this model.
TEST(SavedPrefixes, OfAnotherScalingOfRopeAreAnothers) {
  const test::TemporaryFolder scratch;
  const Model model = test::f32_model(test::family_folder("phi-3"), scratch);
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  const auto layout = [&](std::int64_t context) {
    RunLimits limits;
    limits.context = context;
    Session session(model, *backend, resolve_limits(limits, model.config()));
    return prefix_owner(model, session).layout;
  };
  EXPECT_NE(layout(32), layout(33));
  EXPECT_EQ(layout(33), layout(64));
}

TEST(SavedPrefixes, ASaveWithoutMemoryLeavesTheEngineUsable) {
  if (*LEQ_SANITIZE != '\0') GTEST_SKIP() << "sanitizers reserve address space of their own";
  const Model model(test::quantized(std::string(LEQ_SOURCE_DIR) + "/examples/storyteller", "int8"),
                    {});
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  RunLimits limits;
  limits.context = 1024;
  Session session(model, *backend, resolve_limits(limits, model.config()));
  Generator generator(session, model.tokenizer(), {});
  EngineRequest request;
  request.prompt = std::vector<Token>(900, 301);
  request.stop.max_tokens = 2;
  (void)generator.generate(request);
  mallopt(M_MMAP_THRESHOLD, 64 << 10);  // large blocks are new mappings
  rlimit before = {};
  getrlimit(RLIMIT_AS, &before);
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit none = {static_cast<rlim_t>(pages) * 4096, before.rlim_max};
  std::vector<SavedPrefix> saved;
  saved.reserve(1000);
  setrlimit(RLIMIT_AS, &none);
  EXPECT_THROW(  // not at once if freed memory is left
      while (saved.size() < 1000) saved.push_back(generator.save_prefix(request.prompt)),
      std::bad_alloc);
  setrlimit(RLIMIT_AS, &before);
  saved.clear();
  EXPECT_EQ(session.cache().length(0), 0);
  EXPECT_EQ(generator.generate(request).tokens.size(), 2u);
  EXPECT_EQ(generator.save_prefix(request.prompt).tokens, request.prompt);
}

}  // namespace
}  // namespace leq
