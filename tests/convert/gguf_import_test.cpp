// Compares GGUF files with the Hugging Face checkpoints that they were written from: configuration
// and tensors of every family, and pitfalls of the format.
#include "convert/gguf_import.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <map>
#include <numbers>

#include "base/error.h"
#include "base/half.h"
#include "convert/embedding_files.h"
#include "convert/gguf_config.h"
#include "convert/gguf_models.h"
#include "convert/hf_import.h"
#include "convert/import.h"
#include "convert/small_gguf.h"
#include "format/gguf_source.h"
#include "model/open_model.h"
#include "reference/random_checkpoint.h"
#include "shared_data.h"
#include "temporary_folder.h"

namespace leq {
namespace {

using test::GgufWriter;
using test::RandomCheckpoint;
using test::raw;
using test::SmallGguf;

void expect_same_model(const ImportedModel& got, const ImportedModel& want) {
  EXPECT_EQ(describe(got.config), describe(want.config));
  EXPECT_TRUE(got.config == want.config) << config_to_json(got.config).dump() << '\n'
                                         << config_to_json(want.config).dump();
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
  all.push_back(
      {"llama", test::small_config(), {.qkv_bias = true, .o_bias = true, .mlp_bias = true}});
  all.back().config["attention_bias"] = all.back().config["mlp_bias"] = true;
  all.push_back({"llama", test::small_config("mistral", "MistralForCausalLM"), {}});
  all.back().config["sliding_window"] = 16;
  all.back().config["head_dim"] = 20;
  all.push_back({"qwen2", test::small_config("qwen2", "Qwen2ForCausalLM"), {.qkv_bias = true}});
  all.push_back({"qwen3", test::small_config("qwen3", "Qwen3ForCausalLM"), {.qk_norm = true}});
  all.back().config["head_dim"] = 24;
  using Experts = RandomCheckpoint::Experts;
  all.push_back({"llama",
                 test::small_config("mixtral", "MixtralForCausalLM"),
                 {.experts = Experts::mixtral}});
  all.back().config["num_local_experts"] = 5;
  all.back().config["num_experts_per_tok"] = 2;
  all.push_back({"qwen3moe",
                 test::small_config("qwen3_moe", "Qwen3MoeForCausalLM"),
                 {.qk_norm = true, .experts = Experts::single}});
  all.back().config["num_experts"] = all.back().config["num_local_experts"] = 4;
  all.back().config["num_experts_per_tok"] = 2;
  all.back().config["moe_intermediate_size"] = 72;
  all.back().config["norm_topk_prob"] = true;
  all.push_back(all.back());
  all.back().config["mlp_only_layers"] = {1};
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

// Tests Mixtral as converters of 2023 wrote it, also with quantized experts, whose codes are kept.
TEST(GgufImport, ExpertsOneByOneAndInCodes) {
  const test::TemporaryFolder folder;
  Json config = test::small_config("mixtral", "MixtralForCausalLM");
  config["intermediate_size"] = 160;
  config["num_local_experts"] = 3;
  config["num_experts_per_tok"] = 2;
  RandomCheckpoint checkpoint(folder / "hf");
  checkpoint.add_llama(config, {.experts = RandomCheckpoint::Experts::mixtral});
  const ImportedModel want = import_hf(checkpoint.write(config));
  const auto write = [&](test::WriteAs as, test::WriteExperts experts) {
    GgufWriter writer;
    test::add_config(writer, want.config, "llama");
    test::add_letters(writer);
    test::add_tensors(writer, want, true, as, experts);
    return folder.write("m.gguf", writer.bytes());
  };
  expect_same_model(import_gguf(write(test::WriteAs::f32, test::WriteExperts::single)), want);
  const ImportedModel coded = import_gguf(write(test::WriteAs::q8_0, test::WriteExperts::stacked));
  ASSERT_EQ(coded.tensors.size(), want.tensors.size());
  for (const TensorInput& tensor : coded.tensors) {
    if (tensor.name.find(".experts.2.") == std::string::npos) continue;
    ChosenCodes codes;
    ASSERT_TRUE(tensor.read_codes(*tensor.own_scheme, 1, 3, codes)) << tensor.name;
    const std::vector<float> values = test::rows_of(tensor).values;
    const auto columns = static_cast<std::size_t>(tensor.shape[1]);
    for (std::size_t i = 0; i < 3 * columns; ++i) {
      const float got = codes.scales[i / 32] * codes.scale_mul *
                        static_cast<float>(codes.codes[i] - codes.zeros[i / 32]);
      EXPECT_EQ(got, values[columns + i]) << tensor.name << " " << i;
    }
  }
}

TEST(GgufImport, Gpt2IsItsHuggingFaceCheckpoint) {
  const test::TemporaryFolder folder;
  const Json config = {{"model_type", "gpt2"},
                       {"n_embd", 48},
                       {"n_layer", 2},
                       {"n_head", 4},
                       {"vocab_size", 101},
                       {"n_positions", 32},
                       {"layer_norm_epsilon", 1e-5},
                       {"activation_function", "gelu_new"}};
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
  for (const Trained& trained : {Trained{"storyteller", "llama"},
                                 {"mistral-tiny", "llama"},
                                 {"qwen2-tiny", "qwen2"},
                                 {"qwen3-tiny", "qwen3"},
                                 {"qwen3moe-tiny", "qwen3moe"},
                                 {"gpt2-tiny", "gpt2"}}) {
    SCOPED_TRACE(trained.name);
    LEQ_SHARED_OR_SKIP(folder, std::string("models/") + trained.name);
    const ImportedModel want = import_hf(folder);
    const test::TemporaryFolder out;
    expect_same_model(import_gguf(out.write("m.gguf", written(want, trained.arch).bytes())), want);
  }
}

// Pitfall: Llama 3's scaling is stored as a tensor of divisors, computed in f32 as by converters.
TEST_F(SmallGguf, DivisorsAreLlama3Scaling) {
  for (const auto& [factor, context] : {std::pair(8.0, 8192.0), {32.0, 8192.0}, {8.0, 512.0}}) {
    std::vector<float> divisors;
    for (int i = 0; i < 8; ++i) {
      const double wavelength = 2 * std::numbers::pi * std::pow(10000.0, i / 8.0);
      const double low = context / 1.0, high = context / 4.0;
      double divisor = 1;
      if (wavelength > low) divisor = factor;
      if (wavelength <= low && wavelength >= high) {
        const double smooth = (context / wavelength - 1) / 3;
        divisor = 1 / ((1 - smooth) / factor + smooth);
      }
      divisors.push_back(static_cast<float>(divisor));
    }
    ASSERT_GT(divisors.back(), 1);
    GgufWriter writer = start();
    writer.tensor("rope_freqs.weight", {8}, 0, test::f32_bytes(divisors));
    const RopeScaling scaling = read(writer).config.ropes().at(0).scaling;
    EXPECT_EQ(scaling.kind, RopeScalingKind::llama3);
    EXPECT_EQ(scaling.factor, factor);
    EXPECT_EQ(scaling.low_freq_factor, 1);
    EXPECT_EQ(scaling.high_freq_factor, 4);
    EXPECT_EQ(static_cast<double>(scaling.original_context), context);
  }
}

TEST_F(SmallGguf, OtherDivisorsAreRefused) {
  GgufWriter writer = start();
  writer.tensor("rope_freqs.weight", {8}, 0, test::f32_bytes({1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_NE(error_of(writer).find("does not follow the rule of Llama 3"), std::string::npos);
  writer = start();
  writer.tensor("rope_freqs.weight", {8}, 0, test::f32_bytes(std::vector<float>(8, 1.0f)));
  EXPECT_EQ(read(writer).config.ropes().at(0).scaling.kind, RopeScalingKind::none);
  writer = start();
  writer.tensor("rope_factors_long.weight", {8}, 0, test::f32_bytes(std::vector<float>(8, 1.0f)));
  EXPECT_NE(error_of(writer).find("original_context_length is missing, which longrope needs"),
            std::string::npos);
}

TEST_F(SmallGguf, ScalingsByKeys) {
  GgufWriter writer = start();
  writer.text("llama.rope.scaling.type", "linear");
  writer.f32("llama.rope.scaling.factor", 4);
  RopeScaling scaling = read(writer).config.ropes().at(0).scaling;
  EXPECT_EQ(scaling.kind, RopeScalingKind::linear);
  EXPECT_EQ(scaling.factor, 4);

  writer = start();
  writer.f32("llama.rope.scale_linear", 2);
  EXPECT_EQ(read(writer).config.ropes().at(0).scaling.factor, 2);

  writer = start();
  writer.text("llama.rope.scaling.type", "yarn");
  writer.f32("llama.rope.scaling.factor", 4);
  writer.u32("llama.rope.scaling.original_context_length", 32);
  writer.f32("llama.rope.scaling.yarn_beta_fast", 16);
  scaling = read(writer).config.ropes().at(0).scaling;
  EXPECT_EQ(scaling.kind, RopeScalingKind::yarn);
  EXPECT_EQ(scaling.factor, 4);
  EXPECT_EQ(scaling.original_context, 32);
  EXPECT_EQ(scaling.beta_fast, 16);
  EXPECT_EQ(scaling.attention_factor, 0);  // yarn's default

  writer = start();
  writer.text("llama.rope.scaling.type", "longrope");
  EXPECT_NE(error_of(writer).find("longrope is not supported"), std::string::npos);
  writer = start();
  writer.text("llama.rope.scaling.type", "yarn");
  EXPECT_NE(error_of(writer).find("original_context_length is missing"), std::string::npos);
}

TEST_F(SmallGguf, PoolingIsByKey) {
  EXPECT_EQ(read(start()).embedding, EmbeddingRules());
  constexpr std::array<Pooling, 4> kTypes = {Pooling::none, Pooling::mean, Pooling::cls,
                                             Pooling::last};
  for (std::uint32_t type = 0; type < kTypes.size(); ++type) {
    GgufWriter writer = start();
    writer.u32("llama.pooling_type", type);
    writer.add("tokenizer.ggml.add_eos_token", test::kBool, raw<std::uint8_t>(1));
    const EmbeddingRules rules = read(writer).embedding;
    EXPECT_EQ(rules.pooling, kTypes[type]);
    EXPECT_EQ(rules.end, 94);
    EXPECT_TRUE(rules.normalize);
  }
  GgufWriter writer = start();
  writer.u32("llama.pooling_type", 7);
  EXPECT_NE(error_of(writer).find("llama.pooling_type = 7 is not supported"), std::string::npos);
  writer = start();
  writer.u32("llama.pooling_type", 4);
  EXPECT_NE(error_of(writer).find("only Qwen3-Reranker"), std::string::npos) << error_of(writer);
}

// A few MB in the file would take 64 GB in memory.
TEST_F(SmallGguf, AProjectionOfEmbeddingsWiderThanAnyModelsIsRefused) {
  read(start());
  const GgufSource source(folder_.path() / "m.gguf");
  SourceTensor first, second;
  first.shape = {1, 1 << 17};
  second.shape = {1 << 17, 1};
  test::expect_error(
      [&] {
        embedding_projection({source, first}, {source, second}, 1 << 17);
      },
      {"131072 numbers"});
}

// Pitfall: llama.cpp's converter keeps only the head's rows of yes and no. They must be those of
// the token embedding, which is then the head.
TEST_F(SmallGguf, RankingHeadIsTheEmbeddings) {
  RandomCheckpoint checkpoint(folder_ / "tied");
  config_["tie_word_embeddings"] = true;
  checkpoint.add_llama(config_, {});
  model_ = import_hf(checkpoint.write(config_));
  const auto& table = model_.tensors.front();
  const std::vector<float> values = test::rows_of(table).values;
  const auto width = static_cast<std::size_t>(table.shape[1]);
  for (const std::size_t row : {std::size_t{95}, std::size_t{20}}) {
    GgufWriter writer = start();
    std::vector<std::string> tokens;
    for (int i = 0; i < 94; ++i) tokens.emplace_back(1, static_cast<char>('!' + i));
    tokens.insert(tokens.end(), {"<|im_end|>", "yes", "no"});
    writer.text("tokenizer.ggml.model", "gpt2");
    writer.text("tokenizer.ggml.pre", "gpt-2");
    writer.texts("tokenizer.ggml.tokens", tokens);
    writer.texts("tokenizer.ggml.merges", {});
    writer.u32("tokenizer.ggml.eos_token_id", 94);
    writer.u32("llama.pooling_type", 4);
    std::vector<float> rows(values.begin() + static_cast<std::ptrdiff_t>(row * width),
                            values.begin() + static_cast<std::ptrdiff_t>((row + 2) * width));
    writer.tensor("cls.output.weight", {width, 2}, 0, test::f32_bytes(rows));
    if (row == 95) {
      EXPECT_EQ(read(writer, false).embedding.pooling, Pooling::rank);
    } else {
      EXPECT_NE(error_of(writer, false).find("cut down to cls.output.weight"), std::string::npos);
    }
  }
}

// Pitfall: counts have any integer width, or are lists with one number for each layer.
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

// A preallocated file whose end never came.
TEST_F(SmallGguf, AFileWhoseEndIsZerosIsRefusedByItsWeights) {
  GgufWriter writer = start();
  add_letters(writer);
  add_tensors(writer, model_, true);
  std::string bytes = writer.bytes();
  for (std::size_t i = bytes.size() / 2; i < bytes.size(); ++i) bytes[i] = '\0';
  test::expect_error([&] { import_gguf(folder_.write("half.gguf", bytes)); },
                     {"half.gguf: all bytes of ", " weights are zero, as blk.", " at offset "});
}

TEST_F(SmallGguf, WhatIsNotComputedIsRefusedByKey) {
  const std::vector<std::pair<const char*, std::uint32_t>> keys = {
      {"llama.expert_shared_count", 1},
      {"llama.rope.dimension_count", 8},
      {"llama.attention.value_length", 8}};
  for (const auto& [key, value] : keys) {
    GgufWriter writer = start();
    writer.u32(key, value);
    const std::string error = error_of(writer);
    EXPECT_NE(error.find("not supported"), std::string::npos) << key << ": " << error;
  }
  GgufWriter writer = start();
  writer.f32("llama.final_logit_softcapping", 30);
  EXPECT_NE(error_of(writer).find("final_logit_softcapping = 30 is not supported"),
            std::string::npos);
  writer = start();
  writer.tensor("blk.0.ffn_gate_inp.weight", {96, 4}, 0, std::string(96 * 16, '\0'));
  EXPECT_NE(error_of(writer).find("blk.0.ffn_gate_inp.weight"), std::string::npos);
}

// Counts with which a list would take all memory, a sum overflow or a division fail.
TEST(GgufImport, CountsOfNoModelAreRefusedByKey) {
  struct Case {
    const char* arch;
    std::map<std::string, std::vector<std::int64_t>> counts;
    const char* key;
  };
  const std::vector<std::int64_t> lists = {0, 0};
  const test::TemporaryFolder folder;
  for (const Case& one : std::vector<Case>{
           {"llama", {{"block_count", {1ll << 40}}}, "block_count"},
           {"llama", {{"block_count", {INT64_MIN}}, {"nextn_predict_layers", {9}}}, "block_count"},
           {"llama", {{"nextn_predict_layers", {1 << 30}}}, "nextn_predict_layers"},
           {"llama", {{"nextn_predict_layers", {INT64_MAX}}}, "nextn_predict_layers"},
           {"llama", {{"attention.key_length", {INT64_MAX}}}, "attention.key_length"},
           {"qwen3moe", {{"block_count", {1 << 30}}, {"expert_count", {4}}}, "block_count"},
           {"gemma3",
            {{"block_count", {1 << 30}}, {"attention.sliding_window", {8}}},
            "block_count"},
           {"qwen3next",
            {{"attention.head_count_kv", lists},
             {"ssm.state_size", {4}},
             {"full_attention_interval", {0}}},
            "full_attention_interval"},
           {"gemma4",
            {{"feed_forward_length", lists},
             {"attention.key_length", {16}},
             {"attention.key_length_swa", {16}},
             {"attention.sliding_window", {8}},
             {"attention.shared_kv_layers", {2}}},
            "feed_forward_length"}}) {
    auto counts = one.counts;
    counts.insert({{"block_count", {2}}, {"embedding_length", {64}}, {"context_length", {64}}});
    counts.insert({{"feed_forward_length", {64}}, {"attention.head_count", {4}}});
    test::GgufWriter writer;
    const std::string prefix = std::string(one.arch) + ".";
    writer.text("general.architecture", one.arch);
    writer.f32(prefix + "attention.layer_norm_rms_epsilon", 1e-5f);
    for (const auto& [key, values] : counts) {
      if (values.size() == 1) writer.add(prefix + key, test::kI64, test::raw(values[0]));
      if (values.size() > 1) writer.list(prefix + key, test::kI64, values);
    }
    writer.tensor("token_embd.weight", {64, 7}, 0, std::string(64 * 7 * 4, '\0'));
    test::expect_error([&] { import_gguf_config(folder.write("m.gguf", writer.bytes())); },
                       {one.key});
  }
}

// Any damage must give an error or a model whose numbers can be read.
TEST_F(SmallGguf, AnyDamageIsAnErrorOrAModel) {
  GgufWriter writer = start();
  test::add_letters(writer);
  const std::size_t header = writer.bytes().size() + 2000;  // including the table of tensors
  test::add_tensors(writer, model_, true, test::WriteAs::q8_0);
  const std::string good = writer.bytes();
  Random random(9);
  int refused = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string bytes = good;
    const std::size_t at = random.below(static_cast<std::uint32_t>(header));
    const std::uint64_t numbers[] = {0,          1,     0x7fffffff,       0xffffffff,
                                     1ull << 40, ~0ull, random.below(256)};
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

// A list of the same number instead of a number is not read again for each layer.
TEST(GgufImport, AListOfCountsTakesNoTimeForEachLayer) {
  const test::TemporaryFolder folder;
  const auto time = [&](bool listed) {
    GgufWriter writer;
    writer.text("general.architecture", "gemma3");
    writer.list("gemma3." + std::string(listed ? "block_count" : "unused"), test::kU8,
                std::vector<std::uint8_t>(4000, 200));
    if (!listed) writer.u32("gemma3.block_count", 200);
    for (const char* key : {"context_length", "embedding_length", "feed_forward_length",
                            "attention.head_count", "attention.sliding_window"}) {
      writer.u32(std::string("gemma3.") + key, 64);
    }
    writer.f32("gemma3.attention.layer_norm_rms_epsilon", 1e-5f);
    writer.tensor("token_embd.weight", {64, 1}, 0, std::string(256, '\0'));
    const GgufSource source(folder.write("m.gguf", writer.bytes()));
    const std::clock_t start = std::clock();
    const GgufModel model = read_gguf_model(source);
    EXPECT_EQ(parse_json(model.config_json, "config").at("layer_types").size(), 200u);
    return static_cast<double>(std::clock() - start);
  };
  EXPECT_LT(time(true), 100 * time(false));
}

}  // namespace
}  // namespace leq
