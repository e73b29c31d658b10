// Compares tokenizer.model files with the sentencepiece library: real files, and small ones that
// the library trains here with other settings.
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include "base/random.h"
#include "convert/sentencepiece_model.h"
#include "tokenizer/protobuf_writer.h"
#include "tokenizer/tokenizer_support.h"

namespace leq::test {
namespace {

using Settings = std::unordered_map<std::string, std::string>;

std::vector<Token> encode_plain(const Tokenizer& tokenizer, std::string_view text) {
  EncodeOptions options;
  options.parse_special = false;
  return tokenizer.encode(text, options);
}

void expect_same(const std::string& model, const std::vector<std::string>& texts) {
  sentencepiece::SentencePieceProcessor oracle;
  ASSERT_TRUE(oracle.LoadFromSerializedProto(model).ok());
  const Tokenizer tokenizer(read_sentencepiece_model(as_bytes(model), "oracle.model"));
  ASSERT_EQ(tokenizer.size(), static_cast<std::size_t>(oracle.GetPieceSize()));
  EXPECT_EQ(tokenizer.bos(), oracle.bos_id());
  EXPECT_EQ(tokenizer.eos(), oracle.eos_id());
  for (const std::string& text : texts) {
    const std::vector<int> ids = oracle.EncodeAsIds(text);
    EXPECT_EQ(encode_plain(tokenizer, text), ids) << printable(text, 300);
    const bool unknown = std::find(ids.begin(), ids.end(), oracle.unk_id()) != ids.end();
    if (unknown) continue;  // the library prints a symbol of its own for it
    EXPECT_EQ(tokenizer.decode(ids, false), oracle.DecodeIds(ids)) << printable(text);
  }
}

// Returns stories of invented words, so that the tests need no data.
std::vector<std::string> sentences(std::uint64_t seed, int count) {
  const std::vector<std::string> words = {"the",  "little", "fox",   "walked",  "into",  "woods",
                                          "and",  "saw",    "a",     "lantern", "under", "old",
                                          "oak",  "trees",  "where", "nobody",  "had",   "been",
                                          "café", "déjà",   "vu",    "123",     "45",    "hello"};
  Random random(seed);
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) {
    std::string line;
    for (std::uint32_t n = 3 + random.below(12); n > 0; --n) {
      line += words[random.below(static_cast<std::uint32_t>(words.size()))];
      if (random.below(6) == 0) line += ",";
      line += random.below(9) == 0 ? "  " : " ";
    }
    out.push_back(line + ".");
  }
  return out;
}

std::vector<std::string> hard_texts() {
  std::vector<std::string> texts = sentences(77, 60);
  for (const char* text : {"",
                           " ",
                           "  ",
                           "   a",
                           "a   ",
                           " a  b ",
                           "\n",
                           "\t x",
                           "日本語 テスト",
                           "😀 fox",
                           "fox<mask>oak",
                           "<mask>",
                           " <mask> <mask>x",
                           "<s>fox</s>",
                           "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                           "xyz",
                           "x y z qqq",
                           "the▁fox",
                           "▁",
                           "<0x41>",
                           "oakoakoakoakoak",
                           "zzz日日日zzz"}) {
    texts.emplace_back(text);
  }
  Random random(4);
  for (int i = 0; i < 100; ++i) {
    std::string text;
    for (std::uint32_t n = random.below(40); n > 0; --n) {
      constexpr std::string_view kLetters = "aehltoxw  ,.déjà";
      text += kLetters[random.below(12)];
    }
    texts.push_back(text);
  }
  return texts;
}

class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(std::vector<std::string> lines) : lines_(std::move(lines)) {}
  bool done() const override { return at_ == lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::vector<std::string> lines_;
  std::size_t at_ = 0;
};

std::string train(Settings settings) {
  settings.emplace("normalization_rule_name", "identity");
  settings.emplace("hard_vocab_limit", "false");
  settings.emplace("minloglevel", "3");
  settings.emplace("character_coverage", "1.0");
  std::string model;
  Sentences lines(sentences(1, 3000));
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &lines, &model);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return model;
}

TEST(SentencepieceOracle, TrainedModelsWithAllSettings) {
  for (const char* type : {"bpe", "unigram"}) {
    for (const char* byte_fallback : {"false", "true"}) {
      for (const char* extra_spaces : {"false", "true"}) {
        for (const char* prefix : {"false", "true"}) {
          SCOPED_TRACE(std::string(type) + " " + byte_fallback + " " + extra_spaces + " " + prefix);
          expect_same(train({{"model_type", type},
                             {"vocab_size", std::string(byte_fallback) == "true" ? "420" : "160"},
                             {"byte_fallback", byte_fallback},
                             {"remove_extra_whitespaces", extra_spaces},
                             {"add_dummy_prefix", prefix},
                             {"user_defined_symbols", "<mask>,oak"},
                             {"split_by_whitespace", prefix}}),
                      hard_texts());
        }
      }
    }
  }
}

// Tests characters that are not pieces, equal scores, and user-defined pieces within words.
TEST(SentencepieceOracle, UnusualModels) {
  for (const std::uint64_t model_type : {1u, 2u}) {
    SCOPED_TRACE(model_type);
    auto model = start_sp_model(model_type);
    add_sp_piece(model, "ab", -1, SpType::normal);
    add_sp_piece(model, "abc", -3, SpType::normal);
    add_sp_piece(model, "bc", -3, SpType::normal);
    add_sp_piece(model, "a", -5, SpType::normal);
    add_sp_piece(model, "▁", -6, SpType::normal);
    add_sp_piece(model, "é日", -2, SpType::normal);
    add_sp_piece(model, "▁é日", -2, SpType::normal);
    add_sp_piece(model, "aa", -4, SpType::normal);
    add_sp_piece(model, "aaa", -4, SpType::normal);
    add_sp_piece(model, "cat", 0, SpType::user_defined);
    std::vector<std::string> texts = hard_texts();
    for (const char* text : {"abc", "abcabc", "bcbc", "é日é日", "é", "日é日", "aaaaaaa", "aaaacata",
                             "ccatcat", "bbb", "xabx", "ab c日"}) {
      texts.emplace_back(text);
    }
    expect_same(model.out, texts);
  }
}

TEST(SentencepieceOracle, RealModels) {
  for (const char* path :
       {"models/storyteller/tokenizer.model", "models/mistral-tiny/tokenizer.model",
        "data/tokenizers/llama2/tokenizer.model", "data/tokenizers/mistral/tokenizer.model.v1",
        "data/tokenizers/mistral/mistral_instruct_tokenizer_240323.model.v3",
        "data/tokenizers/mistral/mistral_instruct_tokenizer_241114.model.v7"}) {
    LEQ_SHARED_OR_SKIP(file, path);
    LEQ_SHARED_OR_SKIP(prose, "data/eval/calibration/multilingual.utf8");
    SCOPED_TRACE(path);
    auto texts = hard_texts();
    const std::string lines = read_file(prose, 1 << 24).substr(0, 60000);
    for (const auto line : split(lines, "\n")) {
      if (!first_invalid_utf8(line)) texts.emplace_back(line);
    }
    expect_same(read_file(file, 1 << 24), texts);
  }
}

}  // namespace
}  // namespace leq::test
