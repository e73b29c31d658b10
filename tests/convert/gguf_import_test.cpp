// GGUF files against the Hugging Face checkpoints that they were written from: configuration and
// tensors of every family, and the traps of the format.
#include "convert/gguf_import.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/half.h"
#include "convert/gguf_models.h"
#include "convert/hf_import.h"
#include "convert/import.h"
#include "format/leq_reader.h"
#include "convert/gguf_tokenizer.h"
#include "format/gguf_source.h"
#include "model/open_model.h"
#include "reference/random_checkpoint.h"
#include "shared_data.h"
#include "temporary_folder.h"
#include "tensor/pack.h"
#include "tokenizer/tokenizer_support.h"

namespace leq {
namespace {

using test::GgufWriter;
using test::RandomCheckpoint;
using test::raw;

void expect_same_model(const ImportedModel& got, const ImportedModel& want) {
  EXPECT_EQ(describe(got.config), describe(want.config));
  EXPECT_TRUE(got.config == want.config)
      << config_to_json(got.config).dump() << '\n' << config_to_json(want.config).dump();
  ASSERT_EQ(got.tensors.size(), want.tensors.size());
  for (std::size_t i = 0; i < got.tensors.size(); ++i) {
    EXPECT_EQ(got.tensors[i].name, want.tensors[i].name);
    EXPECT_EQ(got.tensors[i].shape, want.tensors[i].shape);
    EXPECT_EQ(test::rows_of(got.tensors[i]).values, test::rows_of(want.tensors[i]).values)
        << got.tensors[i].name;
  }
}

GgufWriter written(const ImportedModel& model, const std::string& arch) {
  GgufWriter writer;
  test::add_config(writer, model.config, arch);
  test::add_letters(writer);
  test::add_tensors(writer, model, arch == "llama");
  return writer;
}

struct FamilyCase {
  const char* arch;
  Json config;
  RandomCheckpoint::Extras extras;
};

std::vector<FamilyCase> family_cases() {
  std::vector<FamilyCase> all;
  all.push_back({"llama", test::small_config(), {}});
  all.push_back({"llama", test::small_config(), {}});
  all.back().config["tie_word_embeddings"] = true;
  all.back().config["rope_theta"] = 500000.0;
  all.push_back({"llama", test::small_config(), {.qkv_bias = true, .o_bias = true, .mlp_bias = true}});
  all.back().config["attention_bias"] = all.back().config["mlp_bias"] = true;
  all.push_back({"llama", test::small_config("mistral", "MistralForCausalLM"), {}});
  all.back().config["sliding_window"] = 16;
  all.back().config["head_dim"] = 20;
  all.push_back({"qwen2", test::small_config("qwen2", "Qwen2ForCausalLM"), {.qkv_bias = true}});
  all.push_back({"qwen3", test::small_config("qwen3", "Qwen3ForCausalLM"), {.qk_norm = true}});
  all.back().config["head_dim"] = 24;
  return all;
}

TEST(GgufImport, EveryFamilyIsItsHuggingFaceCheckpoint) {
  const test::TemporaryFolder folder;
  for (const FamilyCase& family : family_cases()) {
    SCOPED_TRACE(family.config.dump());
    RandomCheckpoint checkpoint(folder / "hf");
    checkpoint.add_llama(family.config, family.extras);
    const ImportedModel want = import_hf(checkpoint.write(family.config));
    const std::string path = folder.write("m.gguf", written(want, family.arch).bytes());
    expect_same_model(import_gguf(path), want);
    EXPECT_TRUE(import_gguf_config(path) == want.config);
    EXPECT_TRUE(import_config(path) == want.config);
    EXPECT_FALSE(holds_codes(path));
  }
}

TEST(GgufImport, Gpt2IsItsHuggingFaceCheckpoint) {
  const test::TemporaryFolder folder;
  const Json config = {{"model_type", "gpt2"},   {"n_embd", 48},          {"n_layer", 2},
                       {"n_head", 4},            {"vocab_size", 101},     {"n_positions", 32},
                       {"layer_norm_epsilon", 1e-5}, {"activation_function", "gelu_new"}};
  RandomCheckpoint checkpoint(folder / "hf");
  checkpoint.add_gpt2(config, "transformer.");
  const ImportedModel want = import_hf(checkpoint.write(config));
  expect_same_model(import_gguf(folder.write("m.gguf", written(want, "gpt2").bytes())), want);
}

TEST(GgufImport, TrainedModels) {
  struct Trained {
    const char* name;
    const char* arch;
  };
  for (const Trained& trained : {Trained{"storyteller", "llama"}, {"mistral-tiny", "llama"},
                                 {"qwen2-tiny", "qwen2"}, {"qwen3-tiny", "qwen3"}, {"gpt2-tiny", "gpt2"}}) {
    SCOPED_TRACE(trained.name);
    LEQ_SHARED_OR_SKIP(folder, std::string("models/") + trained.name);
    const ImportedModel want = import_hf(folder);
    const test::TemporaryFolder out;
    expect_same_model(import_gguf(out.write("m.gguf", written(want, trained.arch).bytes())), want);
  }
}

// --- what a small llama becomes with one thing changed

class SmallGguf : public testing::Test {
 protected:
  SmallGguf() {
    RandomCheckpoint checkpoint(folder_ / "hf");
    config_ = test::small_config();
    checkpoint.add_llama(config_, {});
    model_ = import_hf(checkpoint.write(config_));
  }

  GgufWriter start() const {
    GgufWriter writer;
    test::add_config(writer, model_.config, "llama");
    return writer;
  }
  ImportedModel read(GgufWriter writer, bool letters = true) const {
    if (letters) test::add_letters(writer);
    test::add_tensors(writer, model_, true);
    return import_gguf(folder_.write("m.gguf", writer.bytes()));
  }
  std::string error_of(const GgufWriter& writer, bool letters = true) const {
    try {
      read(writer, letters);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  test::TemporaryFolder folder_;
  Json config_;
  ImportedModel model_;
};

// Trap: Llama 3's scaling is a tensor of divisors. Made here in f32, as converters do.
TEST_F(SmallGguf, DivisorsAreLlama3Scaling) {
  for (const double factor : {8.0, 32.0}) {
    std::vector<float> divisors;
    for (int i = 0; i < 8; ++i) {
      const double wavelength = 2 * std::numbers::pi * std::pow(10000.0, i / 8.0);
      const double low = 8192 / 1.0, high = 8192 / 4.0;
      double divisor = 1;
      if (wavelength > low) divisor = factor;
      if (wavelength <= low && wavelength >= high) {
        const double smooth = (8192 / wavelength - 1) / 3;
        divisor = 1 / ((1 - smooth) / factor + smooth);
      }
      divisors.push_back(static_cast<float>(divisor));
    }
    ASSERT_GT(divisors.back(), 1);
    GgufWriter writer = start();
    writer.tensor("rope_freqs.weight", {8}, 0, test::f32_bytes(divisors));
    const RopeScaling scaling = read(writer).config.rope_scaling;
    EXPECT_EQ(scaling.kind, RopeScalingKind::llama3);
    EXPECT_EQ(scaling.factor, factor);
    EXPECT_EQ(scaling.low_freq_factor, 1);
    EXPECT_EQ(scaling.high_freq_factor, 4);
    EXPECT_EQ(scaling.original_context, 8192);
  }
}

TEST_F(SmallGguf, OtherDivisorsAreRefused) {
  GgufWriter writer = start();
  writer.tensor("rope_freqs.weight", {8}, 0, test::f32_bytes({1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_NE(error_of(writer).find("does not follow the rule of Llama 3"), std::string::npos);
  writer = start();
  writer.tensor("rope_freqs.weight", {8}, 0, test::f32_bytes(std::vector<float>(8, 1.0f)));
  EXPECT_EQ(read(writer).config.rope_scaling.kind, RopeScalingKind::none);
  writer = start();
  writer.tensor("rope_factors_long.weight", {8}, 0, test::f32_bytes(std::vector<float>(8, 1.0f)));
  EXPECT_NE(error_of(writer).find("LongRoPE is not supported"), std::string::npos);
}

TEST_F(SmallGguf, ScalingsByKeys) {
  GgufWriter writer = start();
  writer.text("llama.rope.scaling.type", "linear");
  writer.f32("llama.rope.scaling.factor", 4);
  RopeScaling scaling = read(writer).config.rope_scaling;
  EXPECT_EQ(scaling.kind, RopeScalingKind::linear);
  EXPECT_EQ(scaling.factor, 4);

  writer = start();
  writer.f32("llama.rope.scale_linear", 2);
  EXPECT_EQ(read(writer).config.rope_scaling.factor, 2);

  writer = start();
  writer.text("llama.rope.scaling.type", "yarn");
  writer.f32("llama.rope.scaling.factor", 4);
  writer.u32("llama.rope.scaling.original_context_length", 32);
  writer.f32("llama.rope.scaling.yarn_beta_fast", 16);
  scaling = read(writer).config.rope_scaling;
  EXPECT_EQ(scaling.kind, RopeScalingKind::yarn);
  EXPECT_EQ(scaling.factor, 4);
  EXPECT_EQ(scaling.original_context, 32);
  EXPECT_EQ(scaling.beta_fast, 16);
  EXPECT_EQ(scaling.attention_factor, 0);  // yarn's own

  writer = start();
  writer.text("llama.rope.scaling.type", "longrope");
  EXPECT_NE(error_of(writer).find("longrope is not supported"), std::string::npos);
  writer = start();
  writer.text("llama.rope.scaling.type", "yarn");
  EXPECT_NE(error_of(writer).find("original_context_length is missing"), std::string::npos);
}

// Trap: keys of any integer width, lists with one number for each layer.
TEST_F(SmallGguf, CountsOfOtherWidths) {
  GgufWriter writer;
  writer.text("general.architecture", "llama");
  writer.add("llama.block_count", test::kU64, raw<std::uint64_t>(2));
  writer.add("llama.embedding_length", test::kI64, raw<std::int64_t>(96));
  writer.add("llama.context_length", test::kU16, raw<std::uint16_t>(64));
  writer.list<std::uint32_t>("llama.feed_forward_length", test::kU32, {200, 200});
  writer.list<std::int32_t>("llama.attention.head_count", test::kI32, {6, 6});
  writer.list<std::int32_t>("llama.attention.head_count_kv", test::kI32, {2, 2});
  writer.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  EXPECT_TRUE(read(writer).config == model_.config);
  writer = GgufWriter();
  writer.text("general.architecture", "llama");
  writer.list<std::uint32_t>("llama.block_count", test::kU32, {200, 100});
  writer.u32("llama.embedding_length", 96);
  EXPECT_NE(error_of(writer).find("differs between layers"), std::string::npos) << error_of(writer);
}

TEST_F(SmallGguf, WhatIsNoModelIsRefusedByName) {
  const auto of_type = [&](const char* type) {
    GgufWriter writer = start();
    writer.text("general.type", type);
    return error_of(writer);
  };
  EXPECT_EQ(of_type("model"), "");
  EXPECT_NE(of_type("adapter").find("is a LoRA adapter"), std::string::npos);
  EXPECT_NE(of_type("mmproj").find("tower"), std::string::npos);
  EXPECT_NE(of_type("imatrix").find("is an importance matrix"), std::string::npos);
  EXPECT_NE(of_type("other").find("general.type is other"), std::string::npos);
  GgufWriter writer;
  writer.text("general.architecture", "clip");
  EXPECT_NE(error_of(writer).find("tower"), std::string::npos);
  writer = GgufWriter();
  EXPECT_NE(error_of(writer).find("general.architecture is missing"), std::string::npos);
  writer.text("general.architecture", "falcon");
  EXPECT_NE(error_of(writer).find("architecture falcon is not supported; supported are llama"),
            std::string::npos);
}

TEST_F(SmallGguf, WhatIsNotComputedIsRefusedByKey) {
  const std::vector<std::pair<const char*, std::uint32_t>> keys = {
      {"llama.expert_count", 8}, {"llama.rope.dimension_count", 8}, {"llama.attention.value_length", 8}};
  for (const auto& [key, value] : keys) {
    GgufWriter writer = start();
    writer.u32(key, value);
    const std::string error = error_of(writer);
    EXPECT_NE(error.find("not supported"), std::string::npos) << key << ": " << error;
  }
  GgufWriter writer = start();
  writer.f32("llama.final_logit_softcapping", 30);
  EXPECT_NE(error_of(writer).find("final_logit_softcapping = 30 is not supported"), std::string::npos);
  writer = start();
  writer.tensor("blk.0.ffn_gate_inp.weight", {96, 4}, 0, std::string(96 * 16, '\0'));
  EXPECT_NE(error_of(writer).find("blk.0.ffn_gate_inp.weight"), std::string::npos);
}

// Damage anywhere: an error, or a model whose numbers can be read.
TEST_F(SmallGguf, AnyDamageIsAnErrorOrAModel) {
  GgufWriter writer = start();
  test::add_letters(writer);
  const std::size_t header = writer.bytes().size() + 2000;  // with the table of tensors
  test::add_tensors(writer, model_, true, test::WriteAs::q8_0);
  const std::string good = writer.bytes();
  Random random(9);
  int refused = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string bytes = good;
    const std::size_t at = random.below(static_cast<std::uint32_t>(header));
    const std::uint64_t numbers[] = {0, 1, 0x7fffffff, 0xffffffff, 1ull << 40, ~0ull, random.below(256)};
    const std::uint64_t number = numbers[random.below(7)];
    const std::size_t size = std::size_t{1} << random.below(4);
    std::memcpy(bytes.data() + at, &number, size);
    if (i % 10 == 0) bytes.resize(random.below(static_cast<std::uint32_t>(bytes.size())));
    try {
      const ImportedModel model = import_gguf(folder_.write("m.gguf", bytes));
      for (const TensorInput& tensor : model.tensors) test::rows_of(tensor);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("m.gguf"), std::string::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_LT(refused, 1500);
}

// --- tokenizers

// Trap: an absent pre-tokenizer, an unknown one, an absent end token: no guess.
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
  EXPECT_EQ(with("gpt-2", true), "");
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
      {[](GgufWriter& w) { add_tokens(w); w.texts("tokenizer.ggml.merges", {"a c"}); },
       "merge 0 of tokenizer.ggml.merges uses c"},
      {[](GgufWriter& w) { add_tokens(w); w.texts("tokenizer.ggml.merges", {"ab"}); },
       "expected two tokens"},
      {[](GgufWriter& w) { add_tokens(w); w.texts("tokenizer.ggml.merges", {"b a"}); }, "uses ba"},
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

// Traps: end tokens are a set; padding tokens are never sampled; numbers may stand for "none".
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
  EXPECT_TRUE(model.tokenizer.add_bos);  // of llama-bpe, where no key says
  EXPECT_EQ(model.chat_template, "{{ messages }}");
  const Json generation = generation_to_json(model.generation);
  EXPECT_EQ(generation.at("top_k").get<int>(), 20);
  EXPECT_NEAR(generation.at("temperature").get<double>(), 0.6, 1e-6);

  writer.flag("tokenizer.ggml.add_bos_token", false);
  EXPECT_FALSE(read(writer, false).tokenizer.add_bos);
}

// llama.cpp's own vocabularies with the ids that it makes of 47 texts.
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

// --- numbers carried over

// Random blocks of a type with scales near 0.01, and now and then one of 0.
std::string random_tensor(const GgufType& type, std::int64_t rows, std::int64_t columns, Random& random) {
  std::string bytes;
  const std::int64_t blocks = rows * columns / type.elements;
  for (std::int64_t b = 0; b < blocks; ++b) {
    std::string block;
    for (std::int64_t i = 0; i < type.bytes; ++i) block += static_cast<char>(random.below(256));
    const auto half = [&](std::size_t at) {
      const float scale = b % 50 == 7 ? 0.0f : 0.01f * random.normal();
      const std::uint16_t bits = f32_to_f16(scale);
      std::memcpy(block.data() + at, &bits, 2);
    };
    if (type.name == "Q6_K") half(208);
    if (type.name == "Q3_K") half(108);
    if (type.name == "Q2_K") half(80), half(82);
    if (type.name == "MXFP4") block[0] = static_cast<char>(118 + random.below(4));
    if (type.name.starts_with("Q4") || type.name.starts_with("Q5") || type.name.starts_with("IQ4") ||
        type.name == "Q8_0") {
      half(0);
    }
    if (type.name == "Q4_1" || type.name == "Q5_1" || type.name == "Q4_K" || type.name == "Q5_K") half(2);
    if (type.name == "Q8_0") {
      for (std::size_t i = 2; i < block.size(); ++i) {
        if (block[i] == '\x80') block[i] = '\x81';
      }
    }
    bytes += block;
  }
  return bytes;
}

// A llama of width 256 whose linears are of one type, the embedding of another.
std::string typed_gguf(const std::string& linears, const std::string& table) {
  Random random(11);
  GgufWriter writer;
  ModelConfig config;
  config.layers = 2;
  config.width = config.hidden = 256;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 64;
  config.context = 64;
  test::add_config(writer, config, "llama");
  test::add_letters(writer);
  const auto add = [&](const std::string& name, std::int64_t rows, const std::string& type) {
    const auto found = std::ranges::find(gguf_types(), type, &GgufType::name);
    writer.tensor(name, {256, static_cast<std::uint64_t>(rows)}, found->id,
                  random_tensor(*found, rows, 256, random));
  };
  const auto norm = [&](const std::string& name) {
    writer.tensor(name, {256}, 0, test::f32_bytes(std::vector<float>(256, 1.0f)));
  };
  add("token_embd.weight", 100, table);
  for (const char* block : {"blk.0.", "blk.1."}) {
    const std::string at = block;
    norm(at + "attn_norm.weight");
    add(at + "attn_q.weight", 256, linears);
    add(at + "attn_k.weight", 128, linears);
    add(at + "attn_v.weight", 128, at == "blk.1." ? table : linears);
    add(at + "attn_output.weight", 256, linears);
    norm(at + "ffn_norm.weight");
    for (const char* name : {"ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"}) {
      add(at + name, 256, linears);
    }
  }
  norm("output_norm.weight");
  return writer.bytes();
}

// Converts with its own types and compares every number with what the file decodes to.
void convert_and_compare(const std::string& linears, const std::string& table, bool exact,
                         const std::string& scheme) {
  SCOPED_TRACE(linears + " and " + table);
  const test::TemporaryFolder folder;
  const std::string path = folder.write("m.gguf", typed_gguf(linears, table));
  EXPECT_TRUE(holds_codes(path));
  const ImportedModel model = import_checkpoint(path);
  CheckpointOptions options;
  options.threads = 2;
  keep_types(model, options);
  quantize_imported(model, folder / "m.leq", options, [](auto, auto) {});
  const LeqReader file(folder / "m.leq", {});
  int matrices = 0;
  for (const TensorInput& tensor : model.tensors) {
    const StoredTensor* stored = file.find(tensor.name);
    ASSERT_NE(stored, nullptr) << tensor.name;
    EXPECT_EQ(stored->source, tensor.source_type);
    if (tensor.shape.size() != 2) continue;
    ++matrices;
    const test::Rows want = test::rows_of(tensor);
    std::vector<float> row(static_cast<std::size_t>(want.columns));
    double worst = 0;
    for (std::int64_t r = 0; r < want.rows; ++r) {
      unpack_row(stored->view, r, row);
      for (std::int64_t k = 0; k < want.columns; ++k) {
        const float w = want.values[static_cast<std::size_t>(r * want.columns + k)];
        worst = std::max(worst, std::abs(double{row[static_cast<std::size_t>(k)]} - double{w}));
      }
    }
    if (exact) {
      EXPECT_EQ(worst, 0) << tensor.name;
      EXPECT_EQ(stored->error, 0) << tensor.name;
      const bool integers = tensor.own_scheme->is_integer();
      EXPECT_EQ(stored->method, integers ? "source" : "none") << tensor.name;
    } else if (tensor.name == "layers.0.q") {
      EXPECT_GT(stored->error, 0) << tensor.name;
      EXPECT_LT(stored->error, 1e-4) << tensor.name;
    }
    if (tensor.name == "layers.0.q") {
      EXPECT_EQ(scheme_name(stored->view.scheme), scheme);
    }
  }
  EXPECT_EQ(matrices, 15);
}

TEST(GgufNumbers, ExactTypesAreCarriedOver) {
  convert_and_compare("Q8_0", "Q8_0", true, "int8-g32");
  convert_and_compare("Q4_0", "Q4_0", true, "int4-g32");
  convert_and_compare("Q4_0", "Q8_0", true, "int4-g32");  // layer 1's v: uint8-g32
  convert_and_compare("Q5_0", "Q8_0", true, "int8-g32");
  convert_and_compare("IQ4_NL", "Q5_0", true, "int8-g32");
  convert_and_compare("MXFP4", "Q8_0", true, "int8-g32");
}

// Layer 1's v is of another type than its q and k, which all read one input.
TEST(GgufNumbers, KTypesAreCarriedOver) {
  convert_and_compare("Q4_K", "Q6_K", true, "q4_k");
  convert_and_compare("Q5_K", "Q6_K", true, "q5_k");
  convert_and_compare("Q6_K", "Q8_0", true, "q6_k");
  convert_and_compare("Q4_K", "Q4_0", true, "q4_k");
}

TEST(GgufNumbers, OthersAreQuantizedAgainAndSayHowFar) {
  for (const char* type : {"Q4_1", "Q5_1", "Q2_K", "IQ4_XS"}) {
    convert_and_compare(type, "Q8_0", false, "int8-g32");
  }
}

TEST(GgufNumbers, AMethodChoosesCodesOfItsOwn) {
  const test::TemporaryFolder folder;
  const ImportedModel model = import_checkpoint(folder.write("m.gguf", typed_gguf("Q8_0", "Q8_0")));
  CheckpointOptions options;
  options.method = "gptq";
  EXPECT_THROW(keep_types(model, options), Error);
  options.method = "absmax";
  options.measure_keys = true;
  EXPECT_THROW(keep_types(model, options), Error);
}

TEST(GgufNumbers, ACodeOfMinus128IsQuantizedAgain) {
  std::string bytes = typed_gguf("Q8_0", "Q8_0");
  bytes[bytes.size() - 256 * 4 - 200] = '\x80';  // in blk.1.ffn_down, or its norm behind it
  const test::TemporaryFolder folder;
  const ImportedModel model = import_checkpoint(folder.write("m.gguf", bytes));
  CheckpointOptions options;
  keep_types(model, options);
  const CheckpointResult result =
      quantize_imported(model, folder / "m.leq", options, [](auto, auto) {});
  const LeqReader file(folder / "m.leq", {});
  EXPECT_EQ(file.find("layers.1.down")->method, "absmax");
  EXPECT_EQ(file.find("layers.1.up")->method, "source");
  EXPECT_EQ(result.worst_tensor, "layers.1.down");
}

}  // namespace
}  // namespace leq
