// Golden files of the trained models have ids and decoded texts computed by transformers, which are
// compared separately for every tokenizer file of each folder.
#include <gtest/gtest.h>

#include "tokenizer/tokenizer.h"
#include "tokenizer_support.h"

namespace leq::test {
namespace {

struct GoldenCase {
  const char* model;
  std::vector<std::string> files;
};

// Long prompts in the golden files are cut to this many ids.
constexpr std::size_t kLongPrompt = 400;

// gtest prints the parameter as part of a test's name.
void PrintTo(const GoldenCase& golden, std::ostream* out) {
  *out << golden.model;
  for (const auto& file : golden.files) *out << " " << file;
}

class TokenizerGoldens : public testing::TestWithParam<GoldenCase> {};

const std::vector<GoldenCase> kCases = {
    {"gpt2-tiny", {"tokenizer.json", "tokenizer_config.json"}},
    {"gpt2-tiny", {"tokenizer.json"}},
    {"gpt2-tiny", {"vocab.json", "merges.txt", "tokenizer_config.json"}},
    {"gpt2-tiny", {"vocab.json", "merges.txt"}},
    {"mistral-tiny", {"tokenizer.json", "tokenizer_config.json"}},
    {"mistral-tiny", {"tokenizer.json"}},
    {"mistral-tiny", {"tokenizer.model", "tokenizer_config.json"}},
    {"mistral-tiny", {"tokenizer.model"}},
    {"qwen2-tiny", {"vocab.json", "merges.txt", "tokenizer_config.json"}},
    {"qwen3-tiny", {"tokenizer.json", "tokenizer_config.json"}},
    {"qwen3-tiny", {"tokenizer.json"}},
    {"qwen35-tiny", {"tokenizer.json", "tokenizer_config.json"}},
    {"qwen3-tiny", {"vocab.json", "merges.txt", "tokenizer_config.json"}},
    {"storyteller", {"tokenizer.json", "tokenizer_config.json"}},
    {"storyteller", {"tokenizer.json"}},
    {"storyteller", {"tokenizer.model", "tokenizer_config.json"}},
    {"storyteller", {"tokenizer.model"}},
};

TEST_P(TokenizerGoldens, IdsAndTexts) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam().model);
  const FolderOf alone(folder, GetParam().files);
  const Tokenizer tokenizer = open_tokenizer(alone.path());
  const Json golden = load_json(folder / "golden.json");
  ASSERT_GE(golden["tokenizer"].size(), 40u);
  for (const Json& entry : golden["tokenizer"]) {
    const auto text = entry["text"].get<std::string>();
    const auto ids = ids_of(entry["ids"]);
    EXPECT_EQ(encode(tokenizer, text), ids) << printable(text);
    EXPECT_EQ(tokenizer.decode(ids, true), entry["decoded"].get<std::string>()) << printable(text);
  }
  EncodeOptions as_prompt;
  as_prompt.add_bos = tokenizer.add_bos();
  for (const Json& entry : golden["prompts"]) {
    const auto text = entry["text"].get<std::string>();
    const auto want = ids_of(entry["ids"]);
    auto ids = tokenizer.encode(text, as_prompt);
    if (want.size() == kLongPrompt) ids.resize(std::min(ids.size(), kLongPrompt));
    EXPECT_EQ(ids, want) << printable(text);
    if (!entry.contains("greedy_ids")) continue;
    EXPECT_EQ(tokenizer.decode(ids_of(entry["greedy_ids"]), false),
              entry["greedy_text"].get<std::string>())
        << printable(text);
  }
  for (const Json& entry : golden.value("chat", Json::array())) {
    if (!entry.contains("ids")) continue;
    EXPECT_EQ(encode(tokenizer, entry["text"].get<std::string>()), ids_of(entry["ids"]));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TokenizerGoldens, testing::ValuesIn(kCases));

TEST(StreamDecoder, TokenByTokenEqualsDecodeAndNeverSplitsACharacter) {
  for (const GoldenCase& golden : kCases) {
    LEQ_SHARED_OR_SKIP(folder, std::string("models/") + golden.model);
    const FolderOf alone(folder, golden.files);
    const Tokenizer tokenizer = open_tokenizer(alone.path());
    const Json all = load_json(folder / "golden.json");
    for (const Json& entry : all["tokenizer"]) {
      const auto ids = ids_of(entry["ids"]);
      StreamDecoder stream(tokenizer, true);
      std::string whole;
      for (const Token id : ids) {
        const std::string part = stream.push(id);
        EXPECT_EQ(first_invalid_utf8(part), std::nullopt);
        EXPECT_EQ(part.find("\xef\xbf\xbd"), std::string::npos);
        whole += part;
      }
      EXPECT_EQ(stream.finish(), "");
      EXPECT_EQ(whole, tokenizer.decode(ids, false));
    }
  }
}

}  // namespace
}  // namespace leq::test
