// Compares with vectors of third parties: texts and the token ids of other programs.
#include <gtest/gtest.h>

#include "tokenizer_support.h"

namespace leq::test {
namespace {

void expect_vectors(const Tokenizer& tokenizer, const std::vector<Vector>& vectors,
                    std::size_t want) {
  ASSERT_EQ(vectors.size(), want);
  for (const Vector& vector : vectors) {
    EXPECT_EQ(encode(tokenizer, vector.text), vector.ids) << printable(vector.text);
    EXPECT_EQ(tokenizer.decode(vector.ids, true), vector.text) << printable(vector.text);
  }
}

constexpr std::size_t kGgmlVectors = 47;

TEST(TokenizerVectors, Gpt2FromEncoderAndMerges) {
  LEQ_SHARED_OR_SKIP(data, "data/tokenizers");
  const Tokenizer tokenizer = open_tokenizer(data / "gpt2");
  expect_vectors(tokenizer, ggml_vectors(data / "ggml-vocab/ggml-vocab-gpt-2.gguf"), kGgmlVectors);
  const Json more = load_json(data / "vectors.json");
  for (const Json& entry : more["gpt2"]["cases"]) {
    const auto text = entry["text"].get<std::string>();
    EXPECT_EQ(encode(tokenizer, text), ids_of(entry["ids"])) << printable(text);
  }
}

TEST(TokenizerVectors, Llama2FromModelAndJson) {
  LEQ_SHARED_OR_SKIP(data, "data/tokenizers");
  const auto vectors = ggml_vectors(data / "ggml-vocab/ggml-vocab-llama-spm.gguf");
  for (const char* name : {"llama2/tokenizer.model", "llama2/tokenizer.json"}) {
    SCOPED_TRACE(name);
    const Tokenizer tokenizer = open_tokenizer(data / name);
    expect_vectors(tokenizer, vectors, kGgmlVectors);
    EXPECT_TRUE(tokenizer.add_bos());
    EXPECT_EQ(tokenizer.bos(), 1);
    EXPECT_EQ(tokenizer.eos(), 2);
  }
}

TEST(TokenizerVectors, Llama2ModelAndJsonAgreeOnProse) {
  LEQ_SHARED_OR_SKIP(data, "data");
  const Tokenizer model = open_tokenizer(data / "tokenizers/llama2/tokenizer.model");
  const Tokenizer json = open_tokenizer(data / "tokenizers/llama2/tokenizer.json");
  const std::string text = read_file(data / "eval/calibration/multilingual.utf8", 1 << 24);
  EXPECT_EQ(encode(model, text), encode(json, text));
}

std::string chat_turn(const std::string& role, const std::string& content) {
  return "<|start_header_id|>" + role + "<|end_header_id|>\n\n" + content + "<|eot_id|>";
}

TEST(TokenizerVectors, Llama3FromRanks) {
  LEQ_SHARED_OR_SKIP(data, "data/tokenizers");
  const Tokenizer tokenizer = open_tokenizer(data / "llama3/tokenizer.model");
  EXPECT_EQ(tokenizer.size(), 128256u);
  EXPECT_EQ(tokenizer.special_id("<|eot_id|>"), 128009);
  EXPECT_EQ(tokenizer.special_id("<|reserved_special_token_247|>"), 128255);
  const Json cases = load_json(data / "vectors.json")["llama3"]["cases"];
  EncodeOptions with_bos;
  with_bos.add_bos = true;
  auto ids = tokenizer.encode(cases[0]["text"].get<std::string>(), with_bos);
  ids.push_back(tokenizer.eos());
  EXPECT_EQ(ids, ids_of(cases[0]["ids"]));
  const std::string sentence = "This is a test sentence.";
  EXPECT_EQ(encode(tokenizer, chat_turn("user", sentence)), ids_of(cases[1]["ids"]));
  const std::string dialog = chat_turn("system", sentence) +
                             chat_turn("user", "This is a response.") +
                             "<|start_header_id|>assistant<|end_header_id|>\n\n";
  EXPECT_EQ(tokenizer.encode(dialog, with_bos), ids_of(cases[2]["ids"]));
}

TEST(TokenizerVectors, QwenFromRanks) {
  LEQ_SHARED_OR_SKIP(data, "data/tokenizers");
  const Tokenizer tokenizer = open_tokenizer(data / "qwen/qwen.tiktoken");
  EXPECT_EQ(tokenizer.size(), 151646u);
  EXPECT_FALSE(tokenizer.add_bos());
  // These ids are in Qwen2's documentation and in llama.cpp's vectors for it.
  EXPECT_EQ(encode(tokenizer, "Hello world"), (std::vector<Token>{9707, 1879}));
  EXPECT_EQ(encode(tokenizer, "<|im_start|>user\n"), (std::vector<Token>{151644, 872, 198}));
  EXPECT_EQ(encode(tokenizer, "3333"), (std::vector<Token>{18, 18, 18, 18}));
  EXPECT_EQ(encode(tokenizer, "e\xcc\x81"), encode(tokenizer, "\xc3\xa9"));  // NFC
  for (const auto& vector : ggml_vectors(data / "ggml-vocab/ggml-vocab-gpt-2.gguf")) {
    EXPECT_EQ(tokenizer.decode(encode(tokenizer, vector.text), true), vector.text);
  }
}

// mistral-common's rendered text has U+2581 instead of spaces, and shows the space that encoding
// adds after each special token.
std::string mistral_text(std::string text, const Tokenizer& tokenizer) {
  for (const char* special : {"<s>", "</s>", "[INST]", "[/INST]"}) {
    if (!tokenizer.special_id(special)) continue;
    text = replace_all(text, std::string(special) + std::string(kSpaceMark), special);
  }
  return replace_all(text, kSpaceMark, " ");
}

TEST(TokenizerVectors, MistralSamples) {
  LEQ_SHARED_OR_SKIP(data, "data/tokenizers/mistral");
  const std::vector<std::pair<std::string, std::string>> models = {
      {"v1", "tokenizer.model.v1"},
      {"v2", "mistral_instruct_tokenizer_240216.model.v2"},
      {"v3", "mistral_instruct_tokenizer_240323.model.v3"}};
  for (const auto& [version, file] : models) {
    SCOPED_TRACE(file);
    const Tokenizer tokenizer = open_tokenizer(data / file);
    const auto sample = data / "samples/no_tools";
    const std::string text = read_file(sample / ("text_" + version + ".txt"), 1 << 20);
    const Json tokens = load_json(sample / ("tokens_" + version + ".json"));
    EXPECT_EQ(encode(tokenizer, mistral_text(text, tokenizer)), ids_of(tokens["tokens"]));
  }
  const Tokenizer v1 = open_tokenizer(data / "tokenizer.model.v1");
  const Json instruct = load_json(data / "../vectors.json")["mistral_v1_instruct"]["cases"][0];
  EncodeOptions with_bos;
  with_bos.add_bos = true;
  EXPECT_EQ(v1.encode(instruct["decoded"].get<std::string>(), with_bos), ids_of(instruct["ids"]));
}

TEST(TokenizerVectors, MistralV7Opens) {
  LEQ_SHARED_OR_SKIP(data, "data/tokenizers/mistral");
  const Tokenizer tokenizer = open_tokenizer(data / "mistral_instruct_tokenizer_241114.model.v7");
  EXPECT_EQ(tokenizer.size(), 32768u);
  const auto start = tokenizer.special_id("[SYSTEM_PROMPT]");
  ASSERT_TRUE(start.has_value());
  EXPECT_EQ(tokenizer.type(*start), TokenType::control);
  const auto ids = encode(tokenizer, "[SYSTEM_PROMPT] Hi");
  ASSERT_FALSE(ids.empty());
  EXPECT_EQ(ids[0], *start);
}

TEST(TokenizerVectors, SpecialTokensAreTextWhenNotParsed) {
  LEQ_SHARED_OR_SKIP(data, "data/tokenizers");
  EncodeOptions plain;
  plain.parse_special = false;
  for (const char* name : {"llama3/tokenizer.model", "qwen/qwen.tiktoken", "llama2/tokenizer.model",
                           "llama2/tokenizer.json", "gpt2"}) {
    SCOPED_TRACE(name);
    const Tokenizer tokenizer = open_tokenizer(data / name);
    const std::string text = "a<|eot_id|>b<|im_end|></s><|endoftext|><unk>";
    const auto ids = tokenizer.encode(text, plain);
    for (const Token id : ids) EXPECT_EQ(tokenizer.type(id), TokenType::normal) << id;
    EXPECT_EQ(tokenizer.decode(ids, false), text);
  }
}

}  // namespace
}  // namespace leq::test
