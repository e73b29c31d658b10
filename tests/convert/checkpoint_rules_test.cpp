// Rules for published checkpoints: heads that are tied or not, added tokens without weights, and
// keys that contradict each other or change the model's function.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "convert/hf_import.h"
#include "convert/hf_tokenizer.h"
#include "convert/tokenizer_import.h"
#include "errors.h"
#include "shared_data.h"
#include "temporary_folder.h"

namespace leq::checkpoint_rules {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kMaxBytes = 64 << 20;

// A copy of the storyteller's folder, whose files a test may modify.
class Checkpoint {
 public:
  Checkpoint() {
    for (const auto& entry :
         fs::directory_iterator(fs::path(LEQ_SOURCE_DIR) / "examples/storyteller")) {
      if (entry.is_regular_file())
        fs::copy_file(entry.path(), folder_.path() / entry.path().filename());
    }
  }
  Json read(const char* name) const {
    return parse_json(read_file(folder_.path() / name, kMaxBytes), name);
  }
  void write(const char* name, const std::string& text) const {
    std::ofstream(folder_.path() / name, std::ios::binary) << text;
  }
  void set(const char* key, Json value) const {
    Json config = read("config.json");
    config[key] = std::move(value);
    write("config.json", config.dump());
  }
  // Adds a head that is a copy of the embedding, with `change` added to its first number.
  void add_head(bool change) const {
    const std::string file = read_file(folder_.path() / "model.safetensors", kMaxBytes);
    std::uint64_t size = 0;
    std::memcpy(&size, file.data(), 8);
    Json header = parse_json(file.substr(8, size), "header");
    std::string data = file.substr(8 + size);
    const Json entry = header["model.embed_tokens.weight"];
    const auto begin = entry["data_offsets"][0].get<std::size_t>();
    const auto end = entry["data_offsets"][1].get<std::size_t>();
    std::string head = data.substr(begin, end - begin);
    if (change) head[1] = static_cast<char>(head[1] ^ 0x40);
    header["lm_head.weight"] = entry;
    header["lm_head.weight"]["data_offsets"] =
        Json::array({data.size(), data.size() + head.size()});
    const std::string text = header.dump();
    const std::uint64_t length = text.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    write("model.safetensors", bytes + text + data + head);
  }
  ImportedModel import() const { return import_hf(folder_.path()); }

 private:
  test::TemporaryFolder folder_;
};

bool has_head(const ImportedModel& model) {
  return std::ranges::any_of(model.tensors,
                             [](const auto& t) { return t.role == TensorRole::head; });
}

TEST(TiedHeads, AreWhatTheWeightsSay) {
  const Checkpoint equal;
  equal.set("tie_word_embeddings", true);
  equal.add_head(false);
  const ImportedModel tied = equal.import();
  EXPECT_TRUE(tied.config.tied);
  EXPECT_FALSE(has_head(tied));
  EXPECT_TRUE(tied.notes.empty());
  const Checkpoint other;
  other.set("tie_word_embeddings", true);
  other.add_head(true);
  const ImportedModel both = other.import();
  EXPECT_FALSE(both.config.tied);
  EXPECT_TRUE(has_head(both));
  ASSERT_EQ(both.notes.size(), 1u);
  EXPECT_NE(both.notes[0].find("lm_head.weight differs from the embedding"), std::string::npos);
  const Checkpoint none;
  none.set("tie_word_embeddings", false);
  // The storyteller's own head, if it has one, is removed for this test.
  const ImportedModel plain = none.import();
  EXPECT_EQ(plain.config.tied, !has_head(plain));
}

TEST(AddedTokens, WithoutWeightsAreLeftOut) {
  const Checkpoint checkpoint;
  Json tokenizer = checkpoint.read("tokenizer.json");
  const auto rows = checkpoint.read("config.json")["vocab_size"].get<std::int64_t>();
  tokenizer["added_tokens"].push_back({{"id", rows},
                                       {"content", "[PAD]"},
                                       {"single_word", false},
                                       {"lstrip", false},
                                       {"rstrip", false},
                                       {"normalized", false},
                                       {"special", true}});
  checkpoint.write("tokenizer.json", tokenizer.dump());
  const ImportedModel model = checkpoint.import();
  EXPECT_LE(std::ssize(model.tokenizer.pieces), rows);
  ASSERT_EQ(model.notes.size(), 1u);
  EXPECT_NE(model.notes[0].find("[PAD]"), std::string::npos) << model.notes[0];
  const Tokenizer read(model.tokenizer);
  for (const Token id : read.encode("a [PAD] b", {})) EXPECT_LT(id, rows);
}

TEST(EndTokens, BeyondTheVocabularyAreLeftOutWithALine) {
  const Checkpoint checkpoint;
  const std::vector<Token> own = checkpoint.import().generation.end_tokens;
  ASSERT_FALSE(own.empty());
  const auto rows = checkpoint.read("config.json")["vocab_size"].get<std::int64_t>();
  checkpoint.write("generation_config.json",
                   Json{{"eos_token_id", Json::array({own[0], rows})}}.dump());
  const ImportedModel model = checkpoint.import();
  EXPECT_EQ(model.generation.end_tokens, std::vector<Token>{own[0]});
  ASSERT_EQ(model.notes.size(), 1u);
  EXPECT_NE(model.notes[0].find("end token " + std::to_string(rows)), std::string::npos);
}

// transformers 5 ignores clean_up_tokenization_spaces if the tokenizer is BPE, as all are here,
// unless the key clean_up_tokenization_spaces_for_bpe... forces the clean-up.
TEST(CleanUpOfSpaces, IsIgnoredUnlessItIsForced) {
  const Checkpoint checkpoint;
  Json config = checkpoint.read("tokenizer_config.json");
  config["clean_up_tokenization_spaces"] = true;
  checkpoint.write("tokenizer_config.json", config.dump());
  const Tokenizer read(checkpoint.import().tokenizer);
  const std::string text = "The bear , the fox . Who ?";
  EXPECT_EQ(read.decode(read.encode(text, {}), true), text);
  config["clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"] = true;
  checkpoint.write("tokenizer_config.json", config.dump());
  test::expect_error([&] { (void)checkpoint.import(); }, {"clean_up_tokenization_spaces_for_bpe"});
}

Json llama_config() {
  return {{"model_type", "llama"},    {"hidden_size", 64},
          {"num_hidden_layers", 2},   {"vocab_size", 100},
          {"num_attention_heads", 4}, {"intermediate_size", 128},
          {"rms_norm_eps", 1e-5},     {"max_position_embeddings", 512}};
}
std::string refusal(const Json& config) {
  try {
    (void)import_hf_config(config.dump(), "config.json");
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ConfigKeys, ThatChangeTheFunctionAreRefusedByName) {
  for (const char* key : {"attention_multiplier", "logits_scaling", "embedding_multiplier",
                          "residual_multiplier", "final_logit_softcapping", "scale_emb"}) {
    Json config = llama_config();
    config[key] = 12.5;
    EXPECT_NE(refusal(config).find(key), std::string::npos) << refusal(config);
    config[key] = nullptr;
    EXPECT_EQ(refusal(config), "") << key;
  }
  Json rope = llama_config();
  rope["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 2.0}, {"llama_4_scaling_beta", 0.1}};
  EXPECT_NE(refusal(rope).find("llama_4_scaling_beta"), std::string::npos) << refusal(rope);
  Json neutral = llama_config();
  neutral["logits_scaling"] = 1.0;
  EXPECT_EQ(refusal(neutral), "");
}

TEST(ConfigKeys, OfRopeThatContradictAreRefusedByBothNames) {
  Json config = llama_config();
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 10000.0}};
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  EXPECT_NE(refusal(config).find("rope_scaling and rope_parameters contradict"), std::string::npos);
  config["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 5e5}};
  EXPECT_EQ(refusal(config), "");
  config["rope_scaling"]["factor"] = 8.0;
  EXPECT_NE(refusal(config), "");
}

TEST(ConfigKeys, OfRopeForEachKindOfLayerAreThoseOfItsLayers) {
  const Json one = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  Json config = llama_config();
  config["rope_parameters"] = {{"full_attention", one}, {"sliding_attention", one}};
  ASSERT_EQ(refusal(config), "");
  EXPECT_EQ(import_hf_config(config.dump(), "c").ropes().at(0).theta, 5e5);
  config["rope_parameters"]["sliding_attention"]["rope_theta"] = 1e4;
  EXPECT_NE(refusal(config).find("layer_types is missing"), std::string::npos) << refusal(config);
  config["sliding_window"] = 8;
  for (std::int64_t i = 0; i < config["num_hidden_layers"].get<std::int64_t>(); ++i) {
    config["layer_types"].push_back(i == 1 ? "sliding_attention" : "full_attention");
  }
  const ModelConfig read = import_hf_config(config.dump(), "c");
  EXPECT_EQ(read.layer(0).attention()->rope->theta, 5e5);
  EXPECT_EQ(read.layer(1).attention()->rope->theta, 1e4);
  EXPECT_EQ(read.window(1), 8);
}

TEST(ConfigKeys, ThatAreAbsentOrNullAreWhatTransformersTakes) {
  Json config = llama_config();
  config.erase("max_position_embeddings");
  EXPECT_EQ(import_hf_config(config.dump(), "c").context, 2048);
  Json qwen = llama_config();
  qwen["model_type"] = "qwen3";
  EXPECT_EQ(import_hf_config(qwen.dump(), "c").head_dim, 128);
  qwen["head_dim"] = nullptr;
  EXPECT_EQ(import_hf_config(qwen.dump(), "c").head_dim, 16);
}

// Compares with the tokenizers library on patterns that have another meaning in other engines.
TEST(OnigurumaPatterns, CutAsTheTokenizersLibraryDoes) {
  LEQ_SHARED_OR_SKIP(folder, "data/cases-2026-11");
  struct Case {
    const char *file, *text;
    std::vector<Token> ids;
  };
  const std::vector<Case> cases = {
      {"182", "Hello world", {42, 71, 279, 81, 435, 78, 70}},  // \\h: a hexadecimal digit
      {"182", "\tdeadbeef 12", {200, 70, 71, 341, 68, 71, 71, 72, 223, 473}},
      {"328", "foo oo ooo", {72, 81, 81, 223, 81, 81, 223, 81, 81, 81}},  // {,2}
      {"328", "Hello world", {42, 71, 78, 78, 81, 223, 89, 81, 84, 78, 70}},
      {"161", "e\u0301a \u093e\u0915\u093f x_y", {223, 223}},  // \\w with marks
      {"247", "H\nHad d\nd", {201, 341, 223, 201}},            // ^ and $ at each line
      {"247", "Hello world", {390, 81, 435, 78}}};
  for (const Case& one : cases) {
    const auto spec =
        import_tokenizer(folder / ("tokenizer-" + std::string(one.file) + ".json")).spec;
    EXPECT_EQ(Tokenizer(spec).encode(one.text, {}), one.ids) << one.file << ' ' << one.text;
  }
}

TEST(OnigurumaPatterns, WithoutAnEqualAreRefusedByName) {
  EXPECT_EQ(translated_oniguruma("[\\h-]{,3}a{2}", "t"), "[0-9a-fA-F-]{0,3}a{2}");
  EXPECT_EQ(translated_oniguruma("a{,}{x}[^\\]^$]\\$", "t"), "a{,}{x}[^\\]^$]\\$");
  for (const char* pattern : {"a{1,2}+", "[\\W]", "[\\H]", "(?m:.)", "(?i-m:.)"}) {
    EXPECT_THROW(translated_oniguruma(pattern, "t"), Error) << pattern;
  }
}

}  // namespace
}  // namespace leq::checkpoint_rules
