// Tests tokenizers, end tokens, chat templates and sampling defaults of GGUF files.
#include "convert/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include "convert/small_gguf.h"
#include "format/gguf_source.h"
#include "model/open_model.h"
#include "shared_data.h"
#include "tokenizer/tokenizer_support.h"

namespace leq {
namespace {

using test::GgufWriter;
using test::raw;
using test::SmallGguf;

// Pitfalls: a pre-tokenizer that is missing or unknown, a missing end token. None may be guessed.
TEST_F(SmallGguf, TokenizersAreNotGuessed) {
  const auto with = [&](const char* pre, bool eos) {
    GgufWriter writer = start();
    writer.text("tokenizer.ggml.model", "gpt2");
    if (pre != nullptr) writer.text("tokenizer.ggml.pre", pre);
    writer.texts("tokenizer.ggml.tokens", {"a", "b"});
    writer.texts("tokenizer.ggml.merges", {});
    if (eos) writer.u32("tokenizer.ggml.eos_token_id", 1);
    return error_of(writer, false);
  };
  for (const char* known :
       {"gpt-2", "pixtral", "gpt-4o", "llama4", "seed-coder", "deepseek-coder"}) {
    EXPECT_EQ(with(known, true), "");
  }
  EXPECT_NE(with(nullptr, true).find("tokenizer.ggml.pre is missing"), std::string::npos);
  EXPECT_NE(with("default", true).find("pre-tokenizer default"), std::string::npos);
  EXPECT_NE(with("gpt-2", false).find("eos_token_id is missing"), std::string::npos);
}

TEST_F(SmallGguf, TokenizersThatContradictThemselvesAreRefused) {
  struct Bad {
    void (*make)(GgufWriter&);
    const char* want;
  };
  const auto tokens = [](GgufWriter& w) {
    w.text("tokenizer.ggml.model", "gpt2");
    w.text("tokenizer.ggml.pre", "gpt-2");
    w.texts("tokenizer.ggml.tokens", {"a", "b", "ab"});
  };
  static const auto add_tokens = tokens;
  const std::vector<Bad> all = {
      {[](GgufWriter& w) { w.text("tokenizer.ggml.model", "t5"); }, "tokenizer.ggml.model t5"},
      {[](GgufWriter& w) { w.text("tokenizer.ggml.model", "gpt2"); }, "has 0 tokens"},
      {[](GgufWriter& w) { add_tokens(w); }, "tokenizer.ggml.merges is missing"},
      {[](GgufWriter& w) {
         add_tokens(w);
         w.texts("tokenizer.ggml.merges", {"a c"});
       },
       "merge 0 of tokenizer.ggml.merges uses c"},
      {[](GgufWriter& w) {
         add_tokens(w);
         w.texts("tokenizer.ggml.merges", {"ab"});
       },
       "expected two tokens"},
      {[](GgufWriter& w) {
         add_tokens(w);
         w.texts("tokenizer.ggml.merges", {"b a"});
       },
       "uses ba"},
      {[](GgufWriter& w) {
         add_tokens(w);
         w.texts("tokenizer.ggml.merges", {"a b"});
         w.u32("tokenizer.ggml.eos_token_id", 3);
       },
       "eos_token_id is 3"},
      {[](GgufWriter& w) {
         add_tokens(w);
         w.list<std::int32_t>("tokenizer.ggml.token_type", test::kI32, {1});
       },
       "3 tokens and 1 token types"},
      {[](GgufWriter& w) {
         w.text("tokenizer.ggml.model", "llama");
         w.texts("tokenizer.ggml.tokens", {"a"});
         w.list<float>("tokenizer.ggml.scores", test::kF32, {std::nanf("")});
       },
       "score of token 0"},
      {[](GgufWriter& w) {
         w.text("tokenizer.ggml.model", "llama");
         w.texts("tokenizer.ggml.tokens", {"a"});
       },
       "1 tokens and 0 scores"},
      {[](GgufWriter& w) {
         w.text("tokenizer.ggml.model", "gpt2");
         w.text("tokenizer.ggml.pre", "gpt-2");
         w.texts("tokenizer.ggml.tokens", std::vector<std::string>(200, "a"));
         w.texts("tokenizer.ggml.merges", {});
         w.u32("tokenizer.ggml.eos_token_id", 3);
       },
       "the tokenizer has 200 ids, the model only 131"},
  };
  for (const Bad& bad : all) {
    GgufWriter writer = start();
    bad.make(writer);
    EXPECT_NE(error_of(writer, false).find(bad.want), std::string::npos) << error_of(writer, false);
  }
}

// A second control token of the same text is left out; the ids after it keep their places.
TEST_F(SmallGguf, ControlTokensOfOneTextAreOne) {
  constexpr std::size_t kCopies = 100'000;
  std::vector<std::string> tokens(kCopies, "<pad>");
  std::vector<std::int32_t> types(kCopies, 3);
  std::vector<float> scores(kCopies, 1.5f);
  tokens[7] = "a";
  types[7] = 1;
  scores[7] = -2;
  GgufWriter writer = start();
  writer.text("tokenizer.ggml.model", "llama");
  writer.texts("tokenizer.ggml.tokens", tokens);
  writer.list("tokenizer.ggml.token_type", test::kI32, types);
  writer.list("tokenizer.ggml.scores", test::kF32, scores);
  writer.u32("tokenizer.ggml.eos_token_id", 0);
  const GgufSource source(folder_.write("m.gguf", writer.bytes()));
  const TokenizerSpec spec = read_gguf_tokenizer(source.metadata());
  ASSERT_EQ(spec.pieces.size(), 8u);
  EXPECT_EQ(spec.pieces[7], "a");
  EXPECT_EQ(spec.types[6], TokenType::unused);
  EXPECT_EQ(spec.scores, (std::vector<float>{1.5f, 0, 0, 0, 0, 0, 0, -2}));
  EXPECT_EQ(Tokenizer(spec).encode("a<pad>", {}), (std::vector<Token>{7, 0}));
}

// A file can name its unknown token, or give it a type.
TEST_F(SmallGguf, TheUnknownTokenHasAnIdOrAType) {
  const auto unknown_of = [&](std::int32_t type, std::optional<std::uint32_t> id) {
    GgufWriter writer = start();
    writer.text("tokenizer.ggml.model", "llama");
    writer.texts("tokenizer.ggml.tokens", {"a", "?", "<unk>"});
    writer.list<std::int32_t>("tokenizer.ggml.token_type", test::kI32, {1, 1, type});
    writer.list<float>("tokenizer.ggml.scores", test::kF32, {0, 0, 0});
    writer.u32("tokenizer.ggml.eos_token_id", 0);
    if (id) writer.u32("tokenizer.ggml.unknown_token_id", *id);
    return read_gguf_tokenizer(GgufSource(folder_.write("m.gguf", writer.bytes())).metadata())
        .unknown;
  };
  EXPECT_EQ(unknown_of(1, {}), kNoToken);
  EXPECT_EQ(unknown_of(1, 1), 1);
  EXPECT_EQ(unknown_of(2, {}), 2);
  EXPECT_EQ(unknown_of(2, 1), 2);
}

// Pitfalls: end tokens are a set; padding tokens are never sampled; some values mean "none".
TEST_F(SmallGguf, EndTokensSamplingAndTemplate) {
  GgufWriter writer = start();
  writer.text("tokenizer.ggml.model", "gpt2");
  writer.text("tokenizer.ggml.pre", "llama-bpe");
  writer.texts("tokenizer.ggml.tokens",
               {"a", "<|eot_id|>", "<|end_of_text|>", "[PAD0]", "<tool>", "<|im_end|>", "b"});
  writer.list<std::int32_t>("tokenizer.ggml.token_type", test::kI32, {1, 3, 3, 5, 4, 1, 1});
  writer.texts("tokenizer.ggml.merges", {});
  writer.u32("tokenizer.ggml.eos_token_id", 2);
  writer.u32("tokenizer.ggml.eom_token_id", 6);
  writer.u32("tokenizer.ggml.bos_token_id", 0);
  writer.text("tokenizer.chat_template", "{{ messages }}");
  writer.text("tokenizer.chat_template.tool_use", "other");
  writer.f32("general.sampling.temp", 0.6f);
  writer.add("general.sampling.top_k", test::kI32, raw<std::int32_t>(20));
  const ImportedModel model = read(writer, false);
  EXPECT_EQ(model.generation.end_tokens, (std::vector<Token>{2, 6, 1}));
  EXPECT_EQ(model.tokenizer.types[3], TokenType::unused);
  EXPECT_EQ(model.tokenizer.types[4], TokenType::user_defined);
  EXPECT_TRUE(model.tokenizer.ignore_merges);
  EXPECT_TRUE(model.tokenizer.add_bos);  // llama-bpe's default, if no key is set
  EXPECT_EQ(model.chat_template, "{{ messages }}");
  const Json generation = generation_to_json(model.generation);
  EXPECT_EQ(generation.at("top_k").get<int>(), 20);
  EXPECT_NEAR(generation.at("temperature").get<double>(), 0.6, 1e-6);

  writer.flag("tokenizer.ggml.add_bos_token", false);
  EXPECT_FALSE(read(writer, false).tokenizer.add_bos);
}

// Compares the ids of 47 texts with llama.cpp's, for its own vocabulary files.
TEST(GgufTokenizer, VocabulariesOfLlamaCpp) {
  LEQ_SHARED_OR_SKIP(data, "data/tokenizers/ggml-vocab");
  for (const char* name : {"ggml-vocab-gpt-2.gguf", "ggml-vocab-llama-spm.gguf"}) {
    SCOPED_TRACE(name);
    const GgufSource source(data / name);
    const Tokenizer tokenizer(read_gguf_tokenizer(source.metadata()));
    const auto vectors = test::ggml_vectors(data / name);
    ASSERT_EQ(vectors.size(), 47u);
    for (const test::Vector& vector : vectors) {
      EXPECT_EQ(tokenizer.encode(vector.text, {}), vector.ids) << printable(vector.text);
    }
  }
}

// A tokenizer of Gemma's form (tests/tokenizer/oracle/gemma.py), as tokenizer.json and as GGUF's
// pieces with scores, or Gemma 4's with merges: spaces become marks, none is prepended; line ends
// and blanks are user-defined.
TEST_F(SmallGguf, TokenizersOfGemmaGiveTheIdsOfTokenizers) {
  const Json all =
      test::load_json(std::filesystem::path(LEQ_SOURCE_DIR) / "tests/tokenizer/gemma.json");
  const Json& json = all["tokenizer"];
  const test::FolderOf folder;
  folder.write("tokenizer.json", json.dump());
  std::vector<std::string> tokens(json["model"]["vocab"].size());
  for (const auto& [piece, id] : json["model"]["vocab"].items()) {
    tokens[id.get<std::size_t>()] = piece;
  }
  std::vector<float> scores(tokens.size(), -1e4f);
  std::vector<std::int32_t> types(tokens.size(), 1);
  for (std::size_t i = 0; i < json["model"]["merges"].size(); ++i) {
    const Json& merge = json["model"]["merges"][i];
    const std::string piece = merge[0].text() + merge[1].text();
    scores[json["model"]["vocab"][piece].get<std::size_t>()] = -static_cast<float>(i);
  }
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].starts_with("<0x")) types[id] = 6;
  }
  for (const Json& added : json["added_tokens"]) {
    types[added["id"].get<std::size_t>()] = added["special"] == true ? 3 : 4;
  }
  types[3] = 2;  // <unk>
  std::vector<std::string> merges;
  for (const Json& merge : json["model"]["merges"]) {
    merges.push_back(merge[0].text() + " " + merge[1].text());
  }
  const auto written = [&](const char* model) {
    GgufWriter writer = start();
    writer.text("tokenizer.ggml.model", model);
    writer.texts("tokenizer.ggml.tokens", tokens);
    if (std::string_view(model) == "llama") {
      writer.list("tokenizer.ggml.scores", test::kF32, scores);
    } else {
      writer.texts("tokenizer.ggml.merges", merges);
    }
    writer.list("tokenizer.ggml.token_type", test::kI32, types);
    writer.flag("tokenizer.ggml.add_space_prefix", false);
    writer.u32("tokenizer.ggml.bos_token_id", 2);
    writer.u32("tokenizer.ggml.eos_token_id", 1);
    const GgufSource source(folder_.write(std::string(model) + ".gguf", writer.bytes()));
    return Tokenizer(read_gguf_tokenizer(source.metadata()));
  };
  const Tokenizer of_gguf = written("llama"), of_merges = written("gemma4");
  const Tokenizer of_json = test::open_tokenizer(folder.path());
  EXPECT_GT(all["cases"].size(), 20u);
  for (const Json& one : all["cases"]) {
    const auto ids = test::ids_of(one["ids"]);
    EncodeOptions options;
    options.add_bos = true;
    EXPECT_EQ(of_json.encode(one["text"].text(), options), ids) << one["text"].text();
    EXPECT_EQ(of_gguf.encode(one["text"].text(), options), ids) << one["text"].text();
    EXPECT_EQ(of_json.decode(ids, false), one["decoded"].text());
    EXPECT_EQ(of_gguf.decode(ids, false), one["decoded"].text());
    EXPECT_EQ(of_merges.encode(one["text"].text(), options), ids) << one["text"].text();
    EXPECT_EQ(of_merges.decode(ids, false), one["decoded"].text());
  }
}

}  // namespace
}  // namespace leq
