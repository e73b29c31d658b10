// leq_open of files other than .leq, and receipts, compared with the C++ library.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "capi/native_model.h"
#include "convert/gguf_models.h"
#include "convert/hf_import.h"
#include "engine/receipt.h"
#include "temporary_folder.h"

namespace leq::test {
namespace {

namespace fs = std::filesystem;

std::string text_of(const leq_model* model, const std::string& prompt) {
  leq_session* session = nullptr;
  leq_error error = no_error();
  EXPECT_EQ(leq_session_new(const_cast<leq_model*>(model), nullptr, &session, &error), LEQ_OK)
      << error.text;
  const Owned<leq_session> owned(session);
  return generate(session, {tokenize(model, prompt)}, seeded("{\"temperature\": 0}", 12))
      .texts.at(0);
}

TEST(CApiOpen, AFileInMemoryIsTheFileAndItsBytesAreCopied) {
  std::string bytes = read_file(story_path(), 1 << 26);
  leq_model* model = nullptr;
  leq_error error = no_error();
  ASSERT_EQ(leq_open_memory(bytes.data(), bytes.size(), nullptr, &model, &error), LEQ_OK)
      << error.text;
  const Owned<leq_model> owned(model);
  std::ranges::fill(bytes, 'x');
  EXPECT_EQ(leq_verify(model, nullptr), LEQ_OK);
  EXPECT_EQ(text_of(model, std::string(kPrompt)),
            text_of(open_model().get(), std::string(kPrompt)));
}

TEST(CApiOpen, WhatIsNoFileInMemoryIsTold) {
  const std::string bytes = read_file(story_path(), 1 << 26);
  leq_model* model = nullptr;
  EXPECT_EQ(leq_open_memory(nullptr, 0, nullptr, &model, nullptr), LEQ_MISUSE);
  EXPECT_EQ(leq_open_memory(bytes.data(), bytes.size(), nullptr, nullptr, nullptr), LEQ_MISUSE);
  EXPECT_EQ(leq_open_memory(bytes.data(), ~std::size_t{0}, nullptr, &model, nullptr), LEQ_MISUSE);
  for (const std::size_t size : {std::size_t{0}, std::size_t{100}, bytes.size() / 2}) {
    leq_error error = no_error();
    EXPECT_EQ(leq_open_memory(bytes.data(), size, nullptr, &model, &error), LEQ_BAD_INPUT);
    EXPECT_TRUE(std::string(error.text).starts_with("(memory): ")) << error.text;
    EXPECT_EQ(model, nullptr);
  }
}

// Returns the storyteller as a GGUF file in f32, with a tokenizer of single letters.
std::string gguf_of_story(const TemporaryFolder& folder) {
  const ImportedModel model = import_hf(std::string(LEQ_SOURCE_DIR) + "/examples/storyteller");
  GgufWriter writer;
  add_config(writer, model.config, "llama");
  add_letters(writer);
  add_tensors(writer, model, true);
  return folder.write("story.gguf", writer.bytes());
}

TEST(CApiOpen, AGgufFileIsConvertedIntoTheCacheOnceOrIntoMemory) {
  const TemporaryFolder folder;
  const std::string gguf = gguf_of_story(folder), cache = (folder.path() / "cache").string();
  auto options = sized<leq_open_options>();
  int calls = 0;
  options.user = &calls;
  options.on_progress = [](void* user, const char*, std::int64_t, std::int64_t) -> std::int32_t {
    ++*static_cast<int*>(user);
    return 0;
  };
  leq_error error = no_error();
  std::vector<std::string> texts;
  for (const char* where : {cache.c_str(), cache.c_str(), ""}) {
    options.cache = where;
    const int before = calls;
    leq_model* model = nullptr;
    ASSERT_EQ(leq_open(gguf.c_str(), &options, &model, &error), LEQ_OK) << error.text;
    const Owned<leq_model> owned(model);
    texts.push_back(text_of(model, "once"));
    EXPECT_EQ(calls > before, texts.size() != 2) << "the second one finds the first one's file";
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(cache), fs::directory_iterator()), 1);
  // The same weights are also quantized without GGUF; f32 preserves them exactly.
  const std::string direct =
      quantized(std::string(LEQ_SOURCE_DIR) + "/examples/storyteller", "f32");
  const auto story = open_model(direct);
  const auto with_letters = open_model(fs::directory_iterator(cache)->path());
  leq_logits *found = nullptr, *expected = nullptr;
  const leq_token tokens[] = {5, 17, 60, 3};
  for (const auto& [model, logits] :
       {std::pair(story.get(), &expected), std::pair(with_letters.get(), &found)}) {
    const auto session = new_session(model);
    ASSERT_EQ(leq_feed(session.get(), tokens, 4, LEQ_LAST_LOGITS, logits, &error), LEQ_OK);
  }
  const Owned<leq_logits> a(found), b(expected);
  EXPECT_EQ(std::memcmp(leq_logits_data(found), leq_logits_data(expected),
                        4 * leq_logits_columns(expected)),
            0);
  EXPECT_EQ(texts[1], texts[0]);
  EXPECT_EQ(texts[2], texts[0]);
}

TEST(CApiOpen, AConversionThatTheCallerEndsLeavesNothing) {
  const TemporaryFolder folder;
  const std::string gguf = gguf_of_story(folder), cache = (folder.path() / "cache").string();
  auto options = sized<leq_open_options>();
  options.cache = cache.c_str();
  options.on_progress = [](void*, const char*, std::int64_t, std::int64_t) -> std::int32_t {
    return 1;
  };
  leq_model* model = nullptr;
  EXPECT_EQ(leq_open(gguf.c_str(), &options, &model, nullptr), LEQ_INTERRUPTED);
  EXPECT_EQ(model, nullptr);
  EXPECT_TRUE(fs::is_empty(cache));
  const std::string bytes = read_file(gguf, 1 << 26);
  const std::string cut = folder.write("cut.gguf", bytes.substr(0, 1000));
  EXPECT_EQ(leq_open(cut.c_str(), &options, &model, nullptr), LEQ_BAD_INPUT);
}

// The receipt of a reply from leq_generate.
std::string receipt_of(leq_session* session, const std::vector<leq_token>& prompt,
                       const char* settings) {
  auto options = seeded(settings, 40);
  options.receipts = 1;
  const Written written = generate(session, {prompt}, options);
  EXPECT_EQ(written.call_result.status, LEQ_OK) << written.call_result.text;
  return written.replies.at(0).receipt;
}

TEST(CApiReceipts, HoldTheDigestsOfTheRepliesLogits) {
  const auto model = open_model();
  const auto session = new_session(model.get());
  const auto prompt = tokenize(model.get(), kPrompt);
  const Receipt receipt =
      parse_receipt(receipt_of(session.get(), prompt, "{\"seed\": 3}"), "the receipt");
  EXPECT_EQ(receipt.prompt, prompt);
  EXPECT_EQ(receipt.sampling.seed, 3u);
  ASSERT_EQ(receipt.tokens.size(), 40u);
  ASSERT_EQ(receipt.digests.size(), 3u);
  Native native;
  auto row = native.session().feed(0, prompt);
  for (std::size_t i = 0; i < receipt.tokens.size(); ++i) {
    if (i % kDigestTokens == 0) {
      EXPECT_EQ(receipt.digests[i / kDigestTokens], logits_digest(row)) << i;
    }
    row = native.session().feed(0, std::span(receipt.tokens).subspan(i, 1));
  }
}

TEST(CApiReceipts, AreCheckedAndOthersAreFound) {
  const auto model = open_model();
  const auto session = new_session(model.get());
  const std::string text =
      receipt_of(session.get(), tokenize(model.get(), kPrompt), "{\"seed\": 3, \"top_k\": 5}");
  leq_error error = no_error();
  auto result = sized<leq_receipt_check>();
  const auto check = [&](const std::string& receipt) {
    return leq_check_receipt(session.get(), receipt.data(), receipt.size(), &result, &error);
  };
  ASSERT_EQ(check(text), LEQ_OK) << error.text;
  EXPECT_EQ(result.same, 1);

  Receipt other = parse_receipt(text, "the receipt");
  const Token token = other.tokens[7];
  other.tokens[7] = token + 1;
  ASSERT_EQ(check(receipt_text(other)), LEQ_OK) << error.text;
  EXPECT_EQ(result.same, 0);
  EXPECT_EQ(result.place, 7u);
  EXPECT_EQ(result.found, token);
  EXPECT_EQ(result.expected, token + 1);

  Receipt digests = parse_receipt(text, "the receipt");
  digests.digests[1] ^= 1;
  ASSERT_EQ(check(receipt_text(digests)), LEQ_OK) << error.text;
  EXPECT_EQ(result.logits, 1);
  EXPECT_EQ(result.place, kDigestTokens);

  Receipt stranger = parse_receipt(text, "the receipt");
  stranger.owner.model ^= 1;
  EXPECT_EQ(check(receipt_text(stranger)), LEQ_BAD_INPUT);
  EXPECT_NE(std::string(error.text).find("another model"), std::string::npos) << error.text;
  EXPECT_EQ(check("{"), LEQ_BAD_INPUT);
  EXPECT_EQ(leq_check_receipt(nullptr, "{}", 2, &result, nullptr), LEQ_MISUSE);
  EXPECT_EQ(leq_check_receipt(session.get(), "{}", 2, nullptr, nullptr), LEQ_MISUSE);
  // The session still works after the refused receipts.
  EXPECT_EQ(
      receipt_of(session.get(), tokenize(model.get(), kPrompt), "{\"seed\": 3, \"top_k\": 5}"),
      text);
}

TEST(CApiReceipts, AreNotMadeUnderAGrammar) {
  const auto model = open_model();
  const auto session = new_session(model.get());
  leq_grammar* grammar = nullptr;
  ASSERT_EQ(leq_grammar_from_gbnf("root ::= \"a\"", 12, &grammar, nullptr), LEQ_OK);
  const Owned<leq_grammar> owned(grammar);
  auto options = sized<leq_generate_options>();
  options.receipts = 1;
  options.grammar = grammar;
  EXPECT_EQ(generate(session.get(), {{1}}, options).call_result.status, LEQ_BAD_SETTING);
  EXPECT_EQ(generate(session.get(), {{1}}, seeded("{\"seed\": 1}", 2)).replies.at(0).receipt,
            nullptr);
}

}  // namespace
}  // namespace leq::test
