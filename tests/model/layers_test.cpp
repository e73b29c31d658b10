// Models whose layers differ: their configurations, the files that they require, and results that
// are compared with a naive transformer.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "errors.h"
#include "model/linear_sites.h"
#include "model/model_config.h"
#include "model/rope.h"
#include "reference/model_tensors.h"
#include "reference/random_models.h"

namespace leq {
namespace {

ModelConfig plain() {
  ModelConfig config;
  config.family = "test";
  config.width = 64;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.vocab = 100;
  config.context = 128;
  config.layers.assign(3, {AttentionConfig(), DenseMlpConfig{.hidden = 96}});
  return config;
}

// Each layer differs from the others in more than its window.
ModelConfig mixed() {
  ModelConfig config = plain();
  config.layers[0] = {AttentionConfig{.window = 5, .qkv_bias = true},
                      DenseMlpConfig{.hidden = 96, .bias = true}};
  config.layers[1] = {AttentionConfig{.rope = std::nullopt, .qk_norm = true},
                      DenseMlpConfig{.hidden = 160}};
  config.layers[2] = {
      AttentionConfig{.output_bias = true},
      DenseMlpConfig{.hidden = 96, .gated = false, .activation = Activation::gelu_tanh}};
  return config;
}

// Two layers of Gated DeltaNet, and between them gated attention with RoPE on a part of each head.
ModelConfig hybrid(std::int64_t values_of_a_key) {
  ModelConfig config = plain();
  const DeltaNetConfig delta = {.key_heads = 2,
                                .value_heads = 2 * values_of_a_key,
                                .key_dim = 12,
                                .value_dim = 20,
                                .conv_taps = 4};
  config.layers[0].mixer = config.layers[2].mixer = delta;
  config.layers[1].mixer =
      AttentionConfig{.rope = RopeConfig{.dims = 4}, .qk_norm = true, .output_gate = true};
  return config;
}

// As in LFM2: short convolutions, and attention with norms of q and k.
ModelConfig with_convolutions(std::int64_t taps) {
  ModelConfig config = plain();
  config.layers[0].mixer = config.layers[2].mixer = ShortConvConfig{taps};
  config.layers[1].mixer = AttentionConfig{.qk_norm = true};
  return config;
}

// As in Gemma 3: layers with a window have another theta, a scale of queries of their own and
// GeGLU.
ModelConfig two_ropes() {
  ModelConfig config = plain();
  const DenseMlpConfig mlp = {.hidden = 96, .activation = Activation::gelu_tanh};
  const RopeConfig far = {1e6, {.kind = RopeScalingKind::linear, .factor = 8}};
  config.layers[0] = {AttentionConfig{.window = 5, .query_scale = 0.5}, mlp};
  config.layers[1] = {AttentionConfig{.rope = far, .query_scale = 0.5}, mlp};
  config.layers[2] = {AttentionConfig{.temperature = {0.5, 8}, .query_scale = 0.3}, mlp};
  config.embedding_scale = 8;
  config.post_norm_eps = 1e-6f;
  return config;
}

// As in Gemma 4 26B-A4B: a dense MLP beside experts, with norms of their own.
ModelConfig with_dense_beside() {
  ModelConfig config = test::with_own_heads(two_ropes());
  config.layers[0].mlp = config.layers[2].mlp =
      ExpertsMlpConfig{.experts = 6,
                       .active = 2,
                       .hidden = 64,
                       .normalized = true,
                       .activation = Activation::gelu_tanh,
                       .dense_hidden = 96};
  return config;
}

// As in gpt-oss: sinks of attention, windows in every second layer, clamped SwiGLU, and biases of
// experts and router.
ModelConfig with_sinks() {
  ModelConfig config = plain();
  const ExpertsMlpConfig experts = {.experts = 6,
                                    .active = 2,
                                    .hidden = 64,
                                    .normalized = true,
                                    .activation = Activation::clamped_swiglu,
                                    .bias = true};
  const DenseMlpConfig dense = {
      .hidden = 96, .activation = Activation::clamped_swiglu, .bias = true};
  const AttentionConfig full = {.qkv_bias = true, .output_bias = true, .sinks = true};
  AttentionConfig windowed = full;
  windowed.window = 5;
  config.layers = {{windowed, experts}, {full, dense}, {AttentionConfig{.window = 7}, experts}};
  return config;
}

TEST(LayerConfigs, WithSinksAndBiasesOfExpertsComeBack) {
  const ModelConfig config = with_sinks();
  EXPECT_EQ(config_from_json(parse_json(config_to_json(config).dump(), "text"), "again"), config);
  EXPECT_EQ(required_features(config),
            (std::vector<std::string>{"layers", "experts", "sinks", "activation", "expert_bias"}));
  EXPECT_EQ(linear_sites(config, 0).back().producer, "") << "up + 1 takes no scale";
  ModelConfig ungated = config;
  ungated.layers[1].dense_mlp()->gated = false;
  test::expect_error([&] { config_from_json(config_to_json(ungated), "file"); },
                     {"layers[1]", "clamped_swiglu", "gated"});
}

TEST(LayerConfigs, WithHeadsOfTheirOwnComeBack) {
  const ModelConfig config = test::with_own_heads(two_ropes());
  EXPECT_EQ(config_from_json(parse_json(config_to_json(config).dump(), "text"), "again"), config);
  EXPECT_EQ(required_features(config),
            (std::vector<std::string>{"layers", "rotary_dims", "temperature", "post_norm",
                                      "layer_rope", "query_scale", "embedding_scale", "v_norm",
                                      "layer_heads", "layer_scales", "activation"}));
  EXPECT_EQ(linear_sites(config, 0)[1].producer, "") << "a norm takes v's scale away";
  EXPECT_EQ(linear_sites(config, 2)[1].producer, "v");
  for (const auto& [field, value] : {std::pair("kv_heads", 3),
                                     {"head_dim", 30},
                                     {"head_dim", 0},
                                     {"kv_heads", 0},
                                     {"rotary_dims", 0}}) {
    Json changed = config_to_json(config);
    changed["layers"][1]["mixer"][field] = value;
    test::expect_error([&] { config_from_json(changed, "file"); }, {"layers[1]"});
  }
}

TEST(LayerConfigs, OfRoutersComeBack) {
  ModelConfig config = plain();
  const ExpertsMlpConfig experts = {.experts = 6,
                                    .active = 2,
                                    .hidden = 64,
                                    .sigmoid = true,
                                    .choice_bias = true,
                                    .weight_scale = 1.5};
  config.layers[1].mlp = experts;
  EXPECT_EQ(config_from_json(parse_json(config_to_json(config).dump(), "text"), "again"), config);
  EXPECT_EQ(required_features(config), (std::vector<std::string>{"layers", "experts", "router"}));
  config.layers[1].experts_mlp()->weight_scale = 0;
  test::expect_error([&] { config_from_json(config_to_json(config), "file"); },
                     {"layers[1]", "weight_scale"});
}

TEST(LayerConfigs, WithADenseMlpBesideExpertsComeBack) {
  const ModelConfig config = with_dense_beside();
  EXPECT_EQ(config_from_json(parse_json(config_to_json(config).dump(), "text"), "again"), config);
  EXPECT_EQ(required_features(config).back(), "dense_beside");
  ModelConfig bare = config;
  bare.post_norm_eps = 0;
  bare.layer_scales = false;
  test::expect_error([&] { config_from_json(config_to_json(bare), "file"); },
                     {"layers[0]", "dense_hidden"});
}

// As in Gemma 4 E2B: a layer that reads the keys and values of another, inputs of each layer.
TEST(LayerConfigs, WithSharedKeysAndInputsOfLayersComeBack) {
  ModelConfig config = test::with_own_heads(two_ropes());
  config.layers[2] = config.layers[1];
  config.layers[2].attention()->kv_of = 1;
  config.layers[2].dense_mlp()->hidden = 192;
  config.layer_input = 8;
  EXPECT_EQ(config_from_json(parse_json(config_to_json(config).dump(), "text"), "again"), config);
  const auto features = required_features(config);
  for (const char* feature : {"kv_of", "layer_input"}) {
    EXPECT_NE(std::ranges::find(features, feature), features.end()) << feature;
  }
  EXPECT_EQ(config.cache_layers(), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(linear_sites(config, 2)[0].weights.size(), 1u) << "q alone";
  for (const int layer : {0, 2, 3, -1}) {  // of other heads, itself, none
    Json changed = config_to_json(config);
    changed["layers"][2]["mixer"]["kv_of"] = layer;
    test::expect_error([&] { config_from_json(changed, "file"); }, {"layers[2]", "kv_of"});
  }
}

TEST(LayerConfigs, WithSeveralRulesOfPositionsHaveThemLayerByLayer) {
  ModelConfig config = two_ropes();
  const Json json = config_to_json(config);
  EXPECT_FALSE(json.contains("rope_theta") || json.contains("rope_scaling"));
  EXPECT_EQ(json["layers"][1]["mixer"]["rope"]["rope_theta"], 1e6);
  EXPECT_EQ(config_from_json(parse_json(json.dump(), "text"), "again"), config);
  EXPECT_EQ(required_features(config),
            (std::vector<std::string>{"layers", "temperature", "post_norm", "layer_rope",
                                      "query_scale", "embedding_scale", "activation"}));
  Json changed = json;
  changed["layers"][1]["mixer"]["rope"]["rope_theta"] = 0.5;
  test::expect_error([&] { config_from_json(changed, "file"); }, {"layers[1]", "rope_theta"});
  changed = json;
  changed["layers"][1]["mlp"]["activation"] = "sine";
  test::expect_error([&] { config_from_json(changed, "file"); }, {"layers[1]", "\"sine\""});
  changed = json;
  changed["layers"][0]["mixer"].erase("rope");
  test::expect_error([&] { config_from_json(changed, "file"); }, {"layers[0]", "rope_theta"});
}

// A file of version 1.0 and one of version 1.2, as earlier releases wrote them.
TEST(LayerConfigs, WithOneRuleOfPositionsAreWrittenAsBefore) {
  constexpr std::string_view kScaling =
      R"("rope_scaling":{"attention_factor":0.0,"beta_fast":32.0,"beta_slow":1.0,"factor":1.0,)"
      R"("high_freq_factor":4.0,"low_freq_factor":1.0,"mscale":0.0,"mscale_all_dim":0.0,)"
      R"("original_context":0,"truncate":true,"type":"none"},"rope_theta":10000.0,)";
  const std::string first =
      R"({"context":128,"family":"test","gated":true,"head_dim":16,"heads":4,"hidden":96,)"
      R"("kv_heads":2,"layers":3,"mlp_bias":false,"norm":"rms","norm_eps":9.999999747378752e-06,)"
      R"("output_bias":false,"qk_norm":false,"qkv_bias":false,)" +
      std::string(kScaling) + R"("rotary":true,"tied":false,"vocab":100,"width":64,"windows":[]})";
  EXPECT_EQ(config_to_json(plain()).dump(), first);
  ModelConfig partial = plain();
  partial.layers.assign(
      1, {AttentionConfig{.rope = RopeConfig{.dims = 4}}, DenseMlpConfig{.hidden = 96}});
  const std::string second =
      R"({"context":128,"family":"test","head_dim":16,"heads":4,"kv_heads":2,)"
      R"("layers":[{"mixer":{"kind":"attention","output_bias":false,"qk_norm":false,)"
      R"("qkv_bias":false,"rotary":true,"rotary_dims":4,"window":0},)"
      R"("mlp":{"bias":false,"gated":true,"hidden":96,"kind":"dense"}}],)"
      R"("learned_positions":false,"norm":"rms","norm_eps":9.999999747378752e-06,)" +
      std::string(kScaling) + R"("tied":false,"vocab":100,"width":64})";
  EXPECT_EQ(config_to_json(partial).dump(), second);
  EXPECT_EQ(config_from_json(parse_json(first, "text"), "old"), plain());
  EXPECT_EQ(config_from_json(parse_json(second, "text"), "old"), partial);
}

TEST(LayerConfigs, OfHybridsComeBackAndTakeReadersThatKnowThem) {
  const ModelConfig config = hybrid(3);
  EXPECT_EQ(config_from_json(parse_json(config_to_json(config).dump(), "text"), "again"), config);
  EXPECT_EQ(required_features(config),
            (std::vector<std::string>{"layers", "rotary_dims", "output_gate", "delta_net"}));
  EXPECT_EQ(config.attention_layers(), std::vector<std::int64_t>{1});
  EXPECT_EQ(config.state_layers(), (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(config.ropes(), std::vector<RopeConfig>{RopeConfig{.dims = 4}});
  std::int64_t exact = 0;
  for (const TensorSpec& spec : layer_tensors(config, 0)) {
    exact += spec.role == TensorRole::exact_linear ? 1 : 0;
  }
  EXPECT_EQ(exact, 2);
}

TEST(LayerConfigs, OfShortConvolutionsComeBack) {
  const ModelConfig config = with_convolutions(3);
  EXPECT_EQ(config_from_json(parse_json(config_to_json(config).dump(), "text"), "again"), config);
  EXPECT_EQ(required_features(config), (std::vector<std::string>{"layers", "short_conv"}));
  EXPECT_EQ(config.state_layers(), (std::vector<std::int64_t>{0, 2}));
  for (const std::int64_t taps : {1, 17}) {
    test::expect_error([&] { config_from_json(config_to_json(with_convolutions(taps)), "file"); },
                       {"layers[0]", "taps"});
  }
  ModelConfig alone = config;
  alone.layers[1].mixer = alone.layers[0].mixer;
  EXPECT_THROW(config_from_json(config_to_json(alone), "file"), Error);
}

TEST(LayerConfigs, AConfigurationOfRotatedWeightsIsRefused) {
  Json json = config_to_json(plain());
  json["rotation"] = nullptr;
  EXPECT_EQ(config_from_json(json, "file"), plain());
  json["rotation"] = {{"seed", 1}, {"block", 64}};
  test::expect_error([&] { config_from_json(json, "file"); },
                     {"file: rotation: expected none", "quantize the checkpoint again"});
}

TEST(LayerConfigs, OfHybridsAreRefusedByLayerAndField) {
  struct Case {
    std::size_t layer;
    const char* field;
    Json value;
    const char* text;
  };
  const std::vector<Case> cases = {
      {0, "value_heads", 3, "no multiple"},   {0, "key_dim", 0, "key_dim"},
      {2, "key_dim", 16, "differ"},           {2, "conv_taps", 1, "conv_taps"},
      {0, "value_dim", 1 << 20, "value_dim"}, {1, "rotary_dims", 5, "rotary_dims"},
      {1, "rotary_dims", 18, "rotary_dims"}};
  for (const Case& one : cases) {
    Json json = config_to_json(hybrid(1));
    Json::Array layers;
    for (const Json& layer : json["layers"]) layers.push_back(layer);
    layers[one.layer]["mixer"][one.field] = one.value;
    json["layers"] = layers;
    test::expect_error([&] { config_from_json(json, "file"); }, {one.text});
  }
  ModelConfig alone = hybrid(1);
  alone.layers[1].mixer = alone.layers[0].mixer;
  EXPECT_THROW(config_from_json(config_to_json(alone), "file"), Error);
}

TEST(LayerConfigs, ThatAreAlikeButForWindowsAreWrittenAsVersion10HasThem) {
  ModelConfig config = plain();
  config.layers[1].attention()->window = 32;
  const Json json = config_to_json(config);
  EXPECT_EQ(json["layers"], 3);
  EXPECT_EQ(json["windows"], (std::vector<int>{0, 32, 0}));
  EXPECT_EQ(json["hidden"], 96);
  EXPECT_FALSE(json.contains("learned_positions"));
  EXPECT_TRUE(required_features(config).empty());
  EXPECT_EQ(config_from_json(json, "again"), config);
}

TEST(LayerConfigs, ThatDifferAreWrittenOneByOneAndTakeAReaderThatKnowsThem) {
  const ModelConfig config = mixed();
  const Json json = config_to_json(config);
  EXPECT_EQ(json["layers"].size(), 3u);
  EXPECT_FALSE(json.contains("hidden"));
  EXPECT_EQ(required_features(config), std::vector<std::string>{"layers"});
  EXPECT_EQ(config_from_json(parse_json(json.dump(), "text"), "again"), config);
  // Uniform layers without RoPE or learned positions, which version 1.0 cannot represent.
  ModelConfig bare = plain();
  for (LayerConfig& layer : bare.layers) layer.attention()->rope.reset();
  EXPECT_EQ(config_to_json(bare)["layers"].size(), 3u);
  EXPECT_EQ(config_from_json(config_to_json(bare), "again"), bare);
}

TEST(LayerConfigs, WithATemperatureOfQueriesTakeAReaderThatKnowsIt) {
  ModelConfig config = plain();
  for (LayerConfig& layer : config.layers) layer.attention()->temperature = {0.1, 64};
  EXPECT_EQ(required_features(config), (std::vector<std::string>{"layers", "temperature"}));
  const Json json = config_to_json(config);
  EXPECT_EQ(config_from_json(parse_json(json.dump(), "text"), "again"), config);
  config.layers[1].attention()->temperature.beta = 0.2;
  EXPECT_EQ(config_from_json(config_to_json(config), "file"), config);
  config.layers[1].attention()->temperature = {};  // layers without one are allowed, too
  EXPECT_EQ(config_from_json(config_to_json(config), "file"), config);
  const auto factors = query_factors(config, *config.layer(0).attention(), 200);
  ASSERT_EQ(factors.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const double want = (1 + 0.1 * std::log(1.0 + static_cast<double>(i))) /
                        std::sqrt(static_cast<double>(config.head_dim));
    EXPECT_EQ(factors[i], static_cast<float>(want));
  }
  EXPECT_TRUE(query_factors(config, *config.layer(1).attention(), 200).empty());
}

TEST(LayerConfigs, AreRefusedByLayerAndField) {
  struct Case {
    const char* what;
    std::function<void(Json&)> change;
    const char* text;
  };
  const std::vector<Case> cases = {
      {"a mixer of another kind", [](Json& l) { l["mixer"]["kind"] = "mamba"; }, "mamba"},
      {"no mixer", [](Json& l) { l.erase("mixer"); }, "mixer"},
      {"no window", [](Json& l) { l["mixer"].erase("window"); }, "window"},
      {"a negative window", [](Json& l) { l["mixer"]["window"] = -1; }, "window"},
      {"a flag that is a number", [](Json& l) { l["mixer"]["rotary"] = 1; }, "rotary"},
      {"an MLP of another kind", [](Json& l) { l["mlp"]["kind"] = "lookup"; }, "lookup"},
      {"an MLP without width", [](Json& l) { l["mlp"]["hidden"] = 0; }, "hidden"},
      {"a temperature of no period",
       [](Json& l) {
         l["mixer"]["temperature"] = {{"beta", 0.1}, {"period", 0}};
       },
       "temperature"},
      {"a temperature that cools",
       [](Json& l) {
         l["mixer"]["temperature"] = {{"beta", -1.0}, {"period", 9}};
       },
       "temperature"},
      {"no object", [](Json& l) { l = Json(7); }, "object"}};
  for (const Case& one : cases) {
    Json json = config_to_json(mixed());
    Json::Array layers;
    for (const Json& layer : json["layers"]) layers.push_back(layer);
    one.change(layers[1]);
    json["layers"] = layers;
    test::expect_error([&] { config_from_json(json, "file"); }, {"file: layers[1]", one.text});
  }
  Json none = config_to_json(mixed());
  none["layers"] = Json::array();
  EXPECT_THROW(config_from_json(none, "file"), Error);
}

TEST(LinearSites, ListEveryLinearOfALayerOnceInTheOrderOfTheForwardPass) {
  const ModelConfig config = mixed();
  const std::vector<LinearSite> sites = linear_sites(config, 2);
  ASSERT_EQ(sites.size(), 4u);
  EXPECT_EQ(sites[0].weights.size(), 3u);
  EXPECT_EQ(sites[2].weights.size(), 1u) << "no gate";
  EXPECT_EQ(sites[3].producer, "") << "GELU takes no scale";
  EXPECT_EQ(linear_sites(config, 1)[3].inputs, 160);
  std::int64_t linears = 0;
  for (const TensorSpec& spec : layer_tensors(config, 2)) linears += is_block_linear(spec.role);
  EXPECT_EQ(linears, 6);
}

TEST(LayersThatDiffer, ComputeWhatANaiveTransformerDoes) {
  for (ModelConfig config : {plain(), mixed(), two_ropes(), test::with_own_heads(two_ropes()),
                             with_dense_beside(), with_sinks(), hybrid(1), hybrid(2), hybrid(3),
                             with_convolutions(3), with_convolutions(2)}) {
    for (const bool learned : {false, true}) {
      config.learned_positions = learned;
      const test::ModelTensors model = test::random_tensors(config);
      const auto ids = test::random_ids(40, config.vocab);
      EXPECT_LT(test::relative_difference(test::naive_logits(model, ids),
                                          test::engine_logits(model, ids)),
                1e-4)
          << describe(config) << " learned " << learned;
    }
  }
}

}  // namespace
}  // namespace leq
