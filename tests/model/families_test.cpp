// Shapes, biases, windows and scalings that none of the trained models here has; each is compared
// with the naive transformer in double.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "convert/hf_import.h"
#include "quantize/run/quantize.h"
#include "errors.h"
#include "model/session.h"
#include "reference/naive_transformer.h"
#include "reference/small_hybrid.h"
#include "runtime/make_backend.h"

namespace leq {
namespace {

// The tolerance for f32 sums of a few hundred terms through two layers, compared with double.
constexpr double kLogitTolerance = 2e-4;

std::vector<Token> some_ids(int count, int vocab) {
  Random random(3);
  std::vector<Token> ids;
  for (int i = 0; i < count; ++i)
    ids.push_back(static_cast<Token>(random.below(static_cast<std::uint32_t>(vocab))));
  return ids;
}

std::filesystem::path scratch_folder() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return std::filesystem::temp_directory_path() /
         ("leq_families_" + std::to_string(::getpid()) + "_" + test->name());
}

// Quantizes `folder` to f32 and compares all logits of `tokens` ids with those of the reference.
void expect_same_function(const std::filesystem::path& folder, int tokens) {
  const auto file = folder / "model.leq";
  quantize_checkpoint(folder, file, {.type = "f32", .threads = 1});
  const Model model(file, {});
  const auto backend = make_backend({"cpu", 2});
  RunLimits limits;
  limits.context = tokens;
  limits.batch_tokens = tokens;
  limits.output_tokens = tokens;
  limits.key_type = limits.value_type = KvType::f32;
  const std::size_t before = backend->memory().allocated();
  Session session(model, *backend, resolve_limits(limits, model.config()));
  EXPECT_EQ(session.plan().total() - session.plan().weight_bytes,
            backend->memory().allocated() - before);
  const auto ids = some_ids(tokens, static_cast<int>(model.config().vocab));
  Batch batch;
  batch.add(0, ids.data(), tokens, Batch::Want::all);
  std::vector<float> logits(static_cast<std::size_t>(tokens * model.config().vocab));
  backend->download(session.transformer().forward(batch, session.state()), tokens, logits);

  const auto want = test::NaiveTransformer(import_hf(folder)).forward(ids);
  double worst = 0, largest = 0;
  for (std::size_t t = 0; t < want.size(); ++t) {
    for (std::size_t v = 0; v < want[t].size(); ++v) {
      worst = std::max(worst, std::abs(want[t][v] - logits[t * want[t].size() + v]));
      largest = std::max(largest, std::abs(want[t][v]));
    }
  }
  EXPECT_LT(worst, kLogitTolerance * std::max(1.0, largest));
  EXPECT_GT(largest, 0.1);  // not all zeros
  std::filesystem::remove_all(folder);
}

void check_llama(const Json& config, const test::RandomCheckpoint::Extras& extras,
                 int tokens = 40) {
  test::RandomCheckpoint checkpoint(scratch_folder());
  checkpoint.add_llama(config, extras);
  expect_same_function(checkpoint.write(config), tokens);
}

TEST(Families, LlamaWithAttentionAndMlpBias) {
  Json config = test::small_config();
  config["attention_bias"] = true;
  config["mlp_bias"] = true;
  check_llama(config, {.qkv_bias = true, .o_bias = true, .mlp_bias = true});
}

TEST(Families, LlamaWithHeadsOfTwentyAndHeadDimApartFromWidth) {
  Json config = test::small_config();
  config["head_dim"] = 20;
  config["tie_word_embeddings"] = true;
  check_llama(config, {});
}

TEST(Families, LlamaWithOneHundredTwentyEightWideHeadsAndMultiQuery) {
  Json config = test::small_config();
  config["head_dim"] = 128;
  config["num_key_value_heads"] = 1;
  check_llama(config, {});
}

TEST(Families, LlamaWithLinearScaling) {
  Json config = test::small_config();
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  check_llama(config, {});
}

TEST(Families, LlamaWithDynamicScalingBeyondItsContext) {
  Json config = test::small_config();
  config["max_position_embeddings"] = 24;
  config["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2.0}};
  check_llama(config, {});
}

TEST(Families, LlamaWithLlama3Scaling) {
  Json config = test::small_config();
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 32}};
  check_llama(config, {});
}

TEST(Families, LlamaWithYarnAsTransformers5WritesIt) {
  Json config = test::small_config();
  config["rope_parameters"] = {{"rope_type", "yarn"},
                               {"factor", 4.0},
                               {"rope_theta", 5000.0},
                               {"original_max_position_embeddings", 16}};
  check_llama(config, {});
}

// From position 16 on, q is multiplied by a factor that sharpens the attention distribution.
TEST(Families, Ministral3WithYarnAndQueriesThatGrowSharper) {
  Json config = test::small_config("ministral3", "Ministral3ForCausalLM");
  config["head_dim"] = 16;
  config["rope_parameters"] = {{"type", "yarn"},
                               {"rope_theta", 5000.0},
                               {"factor", 4.0},
                               {"original_max_position_embeddings", 16},
                               {"mscale", 1.0},
                               {"mscale_all_dim", 0.5},
                               {"llama_4_scaling_beta", 0.4}};
  check_llama(config, {}, 60);
}

TEST(Families, MistralWithAWindow) {
  Json config = test::small_config();
  config["model_type"] = "mistral";
  config["architectures"] = {"MistralForCausalLM"};
  config["sliding_window"] = 7;
  check_llama(config, {});
}

TEST(Families, Qwen2WithAWindowOnUpperLayers) {
  Json config = test::small_config();
  config["model_type"] = "qwen2";
  config["architectures"] = {"Qwen2ForCausalLM"};
  config["use_sliding_window"] = true;
  config["sliding_window"] = 5;
  config["max_window_layers"] = 1;
  check_llama(config, {.qkv_bias = true});
}

TEST(Families, Qwen3WithLayerTypesAndHeadNorms) {
  Json config = test::small_config();
  config["model_type"] = "qwen3";
  config["architectures"] = {"Qwen3ForCausalLM"};
  config["head_dim"] = 32;
  config["sliding_window"] = 9;
  config["use_sliding_window"] = true;
  config["layer_types"] = {"sliding_attention", "full_attention"};
  check_llama(config, {.qk_norm = true});
}

using Experts = test::RandomCheckpoint::Experts;

Json mixtral_config() {
  Json config = test::small_config("mixtral", "MixtralForCausalLM");
  config["num_local_experts"] = 4;
  config["num_experts_per_tok"] = 2;
  return config;
}

Json qwen3_moe_config() {
  Json config = test::small_config("qwen3_moe", "Qwen3MoeForCausalLM");
  config["head_dim"] = 32;
  config["num_local_experts"] = 5;
  config["num_experts_per_tok"] = 2;
  config["moe_intermediate_size"] = 72;
  return config;
}

TEST(Families, MixtralWithATensorForEachExpert) {
  check_llama(mixtral_config(), {.experts = Experts::mixtral});
}

TEST(Families, MixtralWithAllExpertsInOneTensor) {
  check_llama(mixtral_config(), {.experts = Experts::stacked});
}

TEST(Families, Qwen3MoeWithoutNormalizedWeights) {
  check_llama(qwen3_moe_config(), {.qk_norm = true, .experts = Experts::single});
}

TEST(Families, Qwen3MoeWithADenseLayerAndStackedExperts) {
  Json config = qwen3_moe_config();
  config["norm_topk_prob"] = true;
  config["mlp_only_layers"] = {1};
  check_llama(config, {.qk_norm = true, .experts = Experts::stacked});
}

// Layers with (i + 1) % 2 == 0 have experts, so layer 0 is dense.
TEST(Families, Qwen3MoeWithExpertsInEverySecondLayer) {
  Json config = qwen3_moe_config();
  config["decoder_sparse_step"] = 2;
  config["mlp_only_layers"] = {0};  // tells the checkpoint's writer the same
  check_llama(config, {.qk_norm = true, .experts = Experts::single});
  config.erase("mlp_only_layers");
  EXPECT_EQ(import_hf_config(config.dump(), "config.json").layer(0).experts_mlp(), nullptr);
  EXPECT_NE(import_hf_config(config.dump(), "config.json").layer(1).experts_mlp(), nullptr);
}

TEST(Families, Qwen35WithExpertsAndASharedOne) {
  for (const Experts spelling : {Experts::stacked, Experts::single}) {
    const Json config = test::small_hybrid_config({.value_dim = 24}, 5, 40, 56);
    test::RandomCheckpoint checkpoint(scratch_folder());
    checkpoint.add_qwen3_5(config, spelling);
    expect_same_function(checkpoint.write(config), 40);
  }
}

// All spellings contain the same numbers, so the imported models must be the same.
TEST(Families, ExpertsAreTheSameInEverySpelling) {
  const auto tensors = [](const Json& config, Experts spelling) {
    test::RandomCheckpoint checkpoint(scratch_folder());
    checkpoint.add_llama(config, {.experts = spelling});
    const ImportedModel model = import_hf(checkpoint.write(config));
    std::map<std::string, std::vector<float>> all;
    for (const TensorInput& tensor : model.tensors) {
      if (tensor.name.find("expert") == std::string::npos) continue;
      std::vector<float>& values = all[tensor.name];
      values.resize(static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]));
      tensor.read(0, tensor.shape[0], values);
    }
    return all;
  };
  const auto single = tensors(mixtral_config(), Experts::mixtral);
  EXPECT_EQ(single.size(), 2u * 3 * 4);
  EXPECT_EQ(single, tensors(mixtral_config(), Experts::stacked));
  std::filesystem::remove_all(scratch_folder());
}

TEST(Families, ExpertsThatAreNotThereAreNamed) {
  const auto refused = [](const Json& config, const std::string& text) {
    test::expect_error([&] { import_hf_config(config.dump(), "config.json"); }, {text});
  };
  Json config = mixtral_config();
  config["num_experts_per_tok"] = 9;
  refused(config, "active experts = 9: expected 1 to 4");
  config = qwen3_moe_config();
  config.erase("num_experts_per_tok");
  refused(config, "num_experts_per_tok");
  config = qwen3_moe_config();
  config["decoder_sparse_step"] = 0;
  refused(config, "decoder_sparse_step");
}

Json gpt2_config() {
  return {{"model_type", "gpt2"},
          {"n_embd", 60},
          {"n_layer", 2},
          {"n_head", 3},
          {"n_positions", 48},
          {"vocab_size", 131},
          {"layer_norm_epsilon", 1e-5},
          {"activation_function", "gelu_new"}};
}

TEST(Families, Gpt2WithPrefixAndUntiedHead) {
  Json config = gpt2_config();
  config["tie_word_embeddings"] = false;
  test::RandomCheckpoint checkpoint(scratch_folder());
  checkpoint.add_gpt2(config, "transformer.");
  expect_same_function(checkpoint.write(config), 40);
}

TEST(Families, Gpt2WithoutPrefixAndWithInnerWidth) {
  Json config = gpt2_config();
  config["n_inner"] = 100;
  test::RandomCheckpoint checkpoint(scratch_folder());
  checkpoint.add_gpt2(config, "");
  expect_same_function(checkpoint.write(config), 40);
}

}  // namespace
}  // namespace leq
