// Models whose layers differ: their configurations, the files that they require, and results that
// are compared with a naive transformer.
#include <gtest/gtest.h>

#include <string>
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
  config.layers[1] = {AttentionConfig{.rotary = false, .qk_norm = true},
                      DenseMlpConfig{.hidden = 160}};
  config.layers[2] = {AttentionConfig{.output_bias = true},
                      DenseMlpConfig{.hidden = 96, .gated = false}};
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
  config.layers[1].mixer = AttentionConfig{.qk_norm = true, .rotary_dims = 4, .output_gate = true};
  return config;
}

TEST(LayerConfigs, OfHybridsComeBackAndTakeReadersThatKnowThem) {
  const ModelConfig config = hybrid(3);
  EXPECT_EQ(config_from_json(parse_json(config_to_json(config).dump(), "text"), "again"), config);
  EXPECT_EQ(required_features(config),
            (std::vector<std::string>{"layers", "rotary_dims", "output_gate", "delta_net"}));
  EXPECT_EQ(config.attention_layers(), std::vector<std::int64_t>{1});
  EXPECT_EQ(config.delta_layers(), (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(config.rope_dims(), 4);
  std::int64_t exact = 0;
  for (const TensorSpec& spec : layer_tensors(config, 0)) {
    exact += spec.role == TensorRole::exact_linear ? 1 : 0;
  }
  EXPECT_EQ(exact, 2);
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
  for (LayerConfig& layer : bare.layers) layer.attention()->rotary = false;
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
  EXPECT_THROW(config_from_json(config_to_json(config), "file"), Error);
  config.layers[1].attention()->temperature = {};  // layers without one are allowed, too
  EXPECT_EQ(config_from_json(config_to_json(config), "file"), config);
  const QueryFactors factors = query_factors(config, 200);
  ASSERT_EQ(factors.factors.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const double want = (1 + 0.1 * std::log(1.0 + static_cast<double>(i))) /
                        std::sqrt(static_cast<double>(config.head_dim));
    EXPECT_EQ(factors.factors[i], static_cast<float>(want));
  }
  EXPECT_TRUE(query_factors(plain(), 200).factors.empty());
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

// Returns random numbers for all tensors; norms are near 1.
test::ModelTensors tensors_of(const ModelConfig& config) {
  test::ModelTensors model;
  model.config = config;
  model.blocks.resize(config.layers.size());
  Random random(17);
  const auto fill = [&](const TensorSpec& spec) {
    const bool vector = spec.shape.size() == 1;
    Matrix matrix = {vector ? 1 : spec.shape[0], spec.shape.back(), {}};
    const bool gain = spec.name.ends_with("norm");
    for (std::int64_t i = 0; i < matrix.rows * matrix.columns; ++i) {
      matrix.values.push_back((gain ? 1.0f : 0.0f) + 0.15f * random.normal());
    }
    return matrix;
  };
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    for (const TensorSpec& spec : layer_tensors(config, layer)) {
      model.blocks[static_cast<std::size_t>(layer)].parts[spec.name] = fill(spec);
    }
  }
  for (const TensorSpec& spec : tensor_list(config)) {
    if (!spec.name.starts_with("layers.")) model.outside.parts[spec.name] = fill(spec);
  }
  return model;
}

TEST(LayersThatDiffer, ComputeWhatANaiveTransformerDoes) {
  for (ModelConfig config : {plain(), mixed(), hybrid(1), hybrid(2), hybrid(3)}) {
    for (const bool learned : {false, true}) {
      config.learned_positions = learned;
      const test::ModelTensors model = tensors_of(config);
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
