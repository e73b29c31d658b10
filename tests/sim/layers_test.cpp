// Models whose layers have different positions, scales and activations, on GPUs: compared with a
// naive transformer in double precision.
#include <gtest/gtest.h>

#include <string>

#include "engine/engine.h"
#include "gpu_devices.h"
#include "models_fixture.h"
#include "reference/family_golden.h"
#include "reference/model_tensors.h"
#include "reference/random_models.h"
#include "sim/engine.h"

namespace leq {
namespace {

// As in Gemma 3: GeGLU, norms of what sublayers add, and layers with a window have another theta.
ModelConfig two_ropes() {
  ModelConfig config;
  config.family = "test";
  config.width = 64;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.vocab = 100;
  config.context = 128;
  const DenseMlpConfig mlp = {.hidden = 96, .activation = Activation::gelu_tanh};
  const RopeConfig far = {1e6, {.kind = RopeScalingKind::linear, .factor = 8}};
  config.layers = {{AttentionConfig{.window = 5, .query_scale = 0.5}, mlp},
                   {AttentionConfig{.rope = far, .query_scale = 0.5}, mlp},
                   {AttentionConfig{.temperature = {0.5, 8}, .query_scale = 0.3}, mlp},
                   {AttentionConfig{.rope = std::nullopt}, DenseMlpConfig{.hidden = 96}}};
  config.embedding_scale = 8;
  config.post_norm_eps = 1e-6f;
  config.logit_cap = {0.5, 10};
  return config;
}

// As in gpt-oss, without its experts: sinks of attention and clamped SwiGLU.
ModelConfig with_sinks() {
  ModelConfig config = two_ropes();
  const DenseMlpConfig mlp = {.hidden = 96, .activation = Activation::clamped_swiglu, .bias = true};
  const AttentionConfig full = {.qkv_bias = true, .output_bias = true, .sinks = true};
  AttentionConfig windowed = full;
  windowed.window = 5;
  config.layers = {{windowed, mlp}, {full, mlp}, {AttentionConfig{.window = 7}, mlp}};
  return config;
}

class LayersOnGpu : public testing::TestWithParam<std::string> {};

TEST_P(LayersOnGpu, OfSeveralRulesComputeWhatANaiveTransformerDoes) {
  for (const ModelConfig& config : {two_ropes(), test::with_own_heads(two_ropes()), with_sinks()}) {
    const test::ModelTensors model = test::random_tensors(config);
    const auto ids = test::random_ids(24, config.vocab);
    const auto want = test::naive_logits(model, ids);
    EXPECT_LT(test::relative_difference(want, test::engine_logits(model, ids, GetParam())), 1e-4)
        << describe(config);
  }
}

// gpt-oss: sinks, and experts with biases and clamped SwiGLU; Gemma 4: heads of two sizes; LFM2:
// short convolutions.
TEST_P(LayersOnGpu, OfTheirOwnHaveTheCpusBits) {
  for (const char* name :
       {"gpt-oss", "gemma-4", "gemma-4-moe", "gemma-4-shared", "lfm2", "lfm2-moe"}) {
    const auto file = test::quantized(test::family_folder(name), "int8-g128");
    const auto ids = test::random_ids(60, 94);
    for (const KvType type : {KvType::f32, KvType::f16, KvType::int8, KvType::simq4}) {
      test::Engine cpu("cpu", file, {type, type});
      test::Engine gpu(GetParam(), file, {type, type}, 1, Arithmetic::exact);
      EXPECT_EQ(cpu.logits(ids, 50, 50), gpu.logits(ids, 50, 50)) << name << kv_type_name(type);
    }
  }
}

TEST_P(LayersOnGpu, FamiliesComputeWhatTransformersDoes) {
  const auto backend = make_backend({.device = GetParam()});
  for (const char* name : {"muse-glimmer", "gemma-3", "gemma-4", "gemma-4-shared", "smollm3",
                           "granite", "granite-4", "phi-3", "lfm2"}) {
    SCOPED_TRACE(name);
    const test::FamilyGolden golden(name);
    const test::TemporaryFolder scratch;
    const Model model = test::f32_model(test::family_folder(name), scratch);
    const auto whole = golden.run(model, *backend, 512);
    EXPECT_LT(golden.difference(whole), 1e-4);
    EXPECT_EQ(whole, golden.run(model, *backend, 7));
  }
}

// EmbeddingGemma: attention in both directions, with and without a window.
TEST_P(LayersOnGpu, SeeBothDirectionsLikeTheCpu) {
  const auto file = test::quantized(
      std::filesystem::path(LEQ_SOURCE_DIR) / "tests/golden/embedding-gemma", "f32");
  for (const KvType type : {KvType::f32, KvType::f16, KvType::int8}) {
    test::Engine cpu("cpu", file, {type, type});
    test::Engine exact(GetParam(), file, {type, type}, 1, Arithmetic::exact);
    test::Engine fast(GetParam(), file, {type, type});
    leq::Engine of_cpu(*cpu.session, cpu.model.tokenizer(), {}),
        of_exact(*exact.session, exact.model.tokenizer(), {}),
        of_fast(*fast.session, fast.model.tokenizer(), {});
    for (const int length : {1, 20, 90}) {
      const auto ids = test::random_ids(length, 94);
      const auto want = of_cpu.embed(ids);
      EXPECT_EQ(of_exact.embed(ids), want) << kv_type_name(type) << ", " << length << " tokens";
      const auto near = of_fast.embed(ids);
      for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(near[i], want[i], 3e-3) << kv_type_name(type) << ", " << length << " tokens";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, LayersOnGpu, testing::ValuesIn(test::gpu_devices()),
                         [](const auto& item) { return test::test_name(item.param); });

}  // namespace
}  // namespace leq
