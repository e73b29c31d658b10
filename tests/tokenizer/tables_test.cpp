// Written binary tables must open as the same tokenizer; damage must be an Error or harmless.
#include <gtest/gtest.h>

#include "base/random.h"
#include "errors.h"
#include "small_specs.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer_support.h"

namespace leq::test {
namespace {

const std::string kText = "the hello caf\xc3\xa9 <s>in<end> \xff\xc3 \xe2\x96\x81 an 123\n\n";

// Opens tables and uses all of them; returns true if they can be opened.
bool use_tables(const std::vector<NamedBlob>& blobs) {
  try {
    const Tokenizer tokenizer(finder(blobs), "damaged.leq");
    EncodeOptions options;
    options.add_bos = true;
    const auto ids = tokenizer.encode(kText, options);
    (void)tokenizer.decode(ids, true);
    StreamDecoder stream(tokenizer, true);
    for (const Token id : ids) (void)stream.push(id);
    (void)stream.finish();
    (void)tokenizer.summary();
    return true;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()), "");
    return false;
  }
}

TEST(TokenizerTables, OpenToTheSameIds) {
  for (const TokenizerSpec& spec : small_specs()) {
    SCOPED_TRACE(spec.source);
    const auto blobs = tokenizer_tables(spec);
    const Tokenizer opened(finder(blobs), "model.leq");
    const Tokenizer made(spec);
    EXPECT_EQ(encode(opened, kText), encode(made, kText));
    EXPECT_EQ(opened.size(), spec.pieces.size());
    EXPECT_EQ(opened.bos(), spec.bos);
    EXPECT_EQ(opened.eos(), spec.eos);
    EXPECT_EQ(opened.add_bos(), spec.add_bos);
    EXPECT_EQ(opened.kind(), spec.kind);
    EXPECT_EQ(opened.summary(), made.summary());
  }
}

TEST(TokenizerTables, SharedModelsOpenToTheSameIds) {
  for (const char* path : {"data/tokenizers/gpt2", "data/tokenizers/llama2/tokenizer.model",
                           "data/tokenizers/llama3/tokenizer.model", "models/qwen3-tiny"}) {
    LEQ_SHARED_OR_SKIP(file, path);
    LEQ_SHARED_OR_SKIP(text_file, "data/eval/calibration/multilingual.utf8");
    const auto spec = import_tokenizer(file).spec;
    const auto blobs = tokenizer_tables(spec);
    const Tokenizer opened(finder(blobs), "model.leq");
    const std::string text = read_file(text_file, 1 << 24).substr(0, 50000);
    EXPECT_EQ(encode(opened, text), encode(Tokenizer(spec), text)) << path;
  }
}

TEST(TokenizerTables, EveryTruncatedPrefixIsAnError) {
  for (const TokenizerSpec& spec : small_specs()) {
    const auto whole = tokenizer_tables(spec);
    ASSERT_TRUE(use_tables(whole));
    for (std::size_t blob = 0; blob < whole.size(); ++blob) {
      auto damaged = whole;
      auto& bytes = damaged[blob].bytes;
      const std::size_t size = bytes.size();
      for (std::size_t keep = size; keep-- > 0;) {
        if (size > 2000 && keep > 300 && keep + 300 < size && keep % 61 != 0) continue;
        bytes.resize(keep);
        // A hash table cut in half is still valid, but other tables have exactly one valid size.
        const bool opens = use_tables(damaged);
        const bool is_hash =
            damaged[blob].name == "tokenizer.lookup" || damaged[blob].name == "tokenizer.merges";
        EXPECT_TRUE(!opens || is_hash) << damaged[blob].name << " " << keep << " of " << size;
      }
    }
  }
}

TEST(TokenizerTables, MissingTablesAreNamed) {
  const auto whole = tokenizer_tables(small_specs()[2]);
  for (std::size_t blob = 0; blob < whole.size(); ++blob) {
    auto damaged = whole;
    damaged.erase(damaged.begin() + static_cast<std::ptrdiff_t>(blob));
    test::expect_error([&] { const Tokenizer tokenizer(finder(damaged), "model.leq"); },
                       {whole[blob].name, "model.leq"});
  }
}

TEST(TokenizerTables, BitFlipsAreAnErrorOrHarmless) {
  constexpr int kFlips = 4000;
  Random random(7);
  for (const TokenizerSpec& spec : small_specs()) {
    const auto whole = tokenizer_tables(spec);
    int refused = 0;
    for (int flip = 0; flip < kFlips; ++flip) {
      auto damaged = whole;
      // Half of the changed bits are in the header, where every byte matters.
      const std::size_t blob =
          flip % 2 == 0 ? 0 : random.below(static_cast<std::uint32_t>(whole.size()));
      auto& bytes = damaged[blob].bytes;
      for (int i = 0; i < 1 + flip % 3; ++i) {
        const std::size_t at = random.below(static_cast<std::uint32_t>(bytes.size()));
        bytes[at] ^= static_cast<std::byte>(1u << random.below(8));
      }
      refused += use_tables(damaged) ? 0 : 1;
    }
    EXPECT_GT(refused, kFlips / 10);
    EXPECT_LT(refused, kFlips);
  }
}

TEST(TokenizerTables, RefusesASpecThatContradictsItself) {
  const auto expect_refused = [](const TokenizerSpec& spec, std::string_view what) {
    test::expect_error([&] { (void)tokenizer_tables(spec); }, {what});
  };
  TokenizerSpec spec = small_byte_spec();
  spec.types.pop_back();
  expect_refused(spec, "piece types");
  spec = small_byte_spec();
  spec.merges[0].result = 100000;
  expect_refused(spec, "a merge has id 100000");
  spec = small_byte_spec();
  spec.pre_tokenizers[0].pattern = "(";
  expect_refused(spec, "pattern \"(\" is refused");
  spec = small_byte_spec();
  spec.eos = -7;
  expect_refused(spec, "bos or eos");
  spec = small_byte_spec();
  spec.added[0].id = 99999;
  expect_refused(spec, "added token");
  spec = small_sentencepiece_spec(TokenizerKind::unigram);
  spec.scores.pop_back();
  expect_refused(spec, "scores");
  spec = small_sentencepiece_spec(TokenizerKind::unigram);
  spec.normalizers[0].content = "\xff";
  expect_refused(spec, "UTF-8");
}

}  // namespace
}  // namespace leq::test
