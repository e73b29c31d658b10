// Layers with experts: which rows are routed to which expert; a row's result must depend only on
// the row.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "backend/cpu/cpu_backend.h"
#include "backend/operations.h"
#include "base/random.h"
#include "errors.h"
#include "model/linear_sites.h"
#include "reference/model_tensors.h"
#include "reference/random_models.h"

namespace leq {
namespace {

struct Logits {
  explicit Logits(std::vector<std::vector<float>> of)
      : backend(make_cpu_backend({1, Isa::portable})),
        rows(backend->allocate_rows(std::ssize(of), std::ssize(of.front()), {})) {
    std::vector<float> all;
    for (const auto& row : of) all.insert(all.end(), row.begin(), row.end());
    backend->assign(all, rows);
  }
  ExpertRoutes route(const Routing& routing, ExpertRoutes* shared = nullptr) {
    ExpertRoutes routes;
    route_rows(rows, rows.capacity, routing, "router", routes, shared);
    return routes;
  }

  std::unique_ptr<Backend> backend;
  Rows rows;
};

TEST(ExpertRoutes, AreTheLargestAndOfEqualsTheFirst) {
  Logits logits({{1, 3, 3, 2, 3}, {0, 0, 0, 0, 0}, {5, 1, 2, 9, 9}});
  const ExpertRoutes routes = logits.route({.experts = 5, .active = 2});
  EXPECT_EQ(routes.first, (std::vector<std::int64_t>{0, 1, 3, 4, 5, 6}));
  EXPECT_EQ(routes.token, (std::vector<std::int32_t>{1, 0, 1, 0, 2, 2}));
  EXPECT_EQ(routes.experts, (std::vector<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(routes.rows_of(1), 2);
}

TEST(ExpertRoutes, WeighByProbabilitiesOfAllExperts) {
  const std::vector<float> row = {0.3f, -1.5f, 2.0f, 1.0f};
  Logits logits({row});
  double sum = 0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit));
  const double two = std::exp(2.0) / sum, three = std::exp(1.0) / sum;
  const ExpertRoutes plain = logits.route({.experts = 4, .active = 2});
  EXPECT_EQ(plain.experts, (std::vector<std::int32_t>{2, 3}));
  EXPECT_NEAR(plain.weight[0], two, 1e-6);
  EXPECT_NEAR(plain.weight[1], three, 1e-6);
  const ExpertRoutes normalized = logits.route({.experts = 4, .active = 2, .normalized = true});
  EXPECT_NEAR(normalized.weight[0], two / (two + three), 1e-6);
  EXPECT_NEAR(normalized.weight[1], three / (two + three), 1e-6);
}

TEST(ExpertRoutes, OfSigmoidsAreChosenWithABiasThatTheirWeightsDoNotHave) {
  const std::vector<float> row = {0.3f, -1.5f, 2.0f, 1.0f}, bias = {-1.0f, 0.9f, -0.5f, -0.3f};
  Logits logits({row});
  const auto p = [&](std::size_t e) { return 1 / (1 + std::exp(-double{row[e]})); };
  const ExpertRoutes routes = logits.route({.experts = 4,
                                            .active = 2,
                                            .normalized = true,
                                            .sigmoid = true,
                                            .choice_bias = bias.data(),
                                            .weight_scale = 2});
  EXPECT_EQ(routes.experts, (std::vector<std::int32_t>{1, 3}));
  EXPECT_NEAR(routes.weight[0], 2 * p(1) / (p(1) + p(3) + 1e-6), 1e-6);
  EXPECT_NEAR(routes.weight[1], 2 * p(3) / (p(1) + p(3) + 1e-6), 1e-6);
}

TEST(ExpertRoutes, OfASharedExpertAreAllRows) {
  Logits logits({{3, 1, 0.0f}, {1, 3, -200.0f}, {3, 1, 200.0f}, {1, 3, 1.0f}});
  ExpertRoutes routes;
  EXPECT_EQ(logits.route({.experts = 2, .active = 1}, &routes).token,
            (std::vector<std::int32_t>{0, 2, 1, 3}));
  EXPECT_TRUE(routes.in_place());
  EXPECT_EQ(routes.weight[0], 0.5f);
  EXPECT_EQ(routes.weight[1], 0.0f);
  EXPECT_EQ(routes.weight[2], 1.0f);
  EXPECT_NEAR(routes.weight[3], 1 / (1 + std::exp(-1.0)), 1e-7);
}

TEST(ExpertRoutes, RefuseLogitsThatAreNoNumbers) {
  Logits logits({{0, 1}, {std::nanf(""), 1}});
  test::expect_error([&] { logits.route({.experts = 2, .active = 1}); }, {"router", "token 1"});
}

ModelConfig with_experts(const ExpertsMlpConfig& mlp) {
  ModelConfig config;
  config.family = "test";
  config.width = 96;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.vocab = 100;
  config.context = 128;
  config.layers.assign(3, {AttentionConfig(), mlp});
  config.layers[1].mlp = DenseMlpConfig{.hidden = 80};
  return config;
}

test::ModelTensors random_tensors(const ModelConfig& config) {
  test::ModelTensors model;
  model.config = config;
  model.blocks.resize(config.layers.size());
  Random random(23);
  for (const TensorSpec& spec : tensor_list(config)) {
    const bool vector = spec.shape.size() == 1;
    Matrix matrix = {vector ? 1 : spec.shape[0], spec.shape.back(), {}};
    const bool gain = spec.name.ends_with("norm");
    for (std::int64_t i = 0; i < matrix.rows * matrix.columns; ++i) {
      matrix.values.push_back((gain ? 1.0f : 0.0f) + 0.15f * random.normal());
    }
    if (spec.name.starts_with("layers.")) {
      const std::string rest = spec.name.substr(7);
      model.blocks.at(std::stoul(rest)).parts[rest.substr(rest.find('.') + 1)] = matrix;
    } else {
      model.outside.parts[spec.name] = matrix;
    }
  }
  return model;
}

const std::vector<ExpertsMlpConfig>& expert_shapes() {
  static const std::vector<ExpertsMlpConfig> kShapes = {
      {.experts = 7, .active = 2, .hidden = 72},
      {.experts = 7, .active = 3, .hidden = 130, .normalized = true},
      {.experts = 4, .active = 4, .hidden = 64, .normalized = true},
      {.experts = 1, .active = 1, .hidden = 40},
      {.experts = 6, .active = 2, .hidden = 72, .normalized = true, .shared_hidden = 72},
      {.experts = 6, .active = 2, .hidden = 48, .normalized = true, .shared_hidden = 136},
      {.experts = 9,
       .active = 3,
       .hidden = 40,
       .normalized = true,
       .sigmoid = true,
       .choice_bias = true,
       .weight_scale = 1.5},
      {.experts = 5, .active = 2, .hidden = 40, .sigmoid = true, .weight_scale = 0.5}};
  return kShapes;
}

TEST(Experts, ComputeWhatANaiveTransformerDoes) {
  for (const ExpertsMlpConfig& mlp : expert_shapes()) {
    const test::ModelTensors model = random_tensors(with_experts(mlp));
    const auto ids = test::random_ids(40, model.config.vocab);
    EXPECT_LT(
        test::relative_difference(test::naive_logits(model, ids), test::engine_logits(model, ids)),
        1e-4)
        << describe(model.config);
  }
}

// The router's rows of experts 1, 3 and 4 are equal, so every token has ties.
TEST(Experts, OfEqualProbabilityAreTakenInOrder) {
  const ExpertsMlpConfig mlp = {.experts = 6, .active = 2, .hidden = 72, .normalized = true};
  test::ModelTensors model = random_tensors(with_experts(mlp));
  for (const std::size_t layer : {0u, 2u}) {
    Matrix& router = model.blocks[layer].parts.at("router");
    for (std::int64_t k = 0; k < router.columns; ++k) {
      const auto at = [&](std::int64_t row) -> float& {
        return router.values[static_cast<std::size_t>(row * router.columns + k)];
      };
      at(3) = at(4) = at(1);
    }
  }
  const auto ids = test::random_ids(40, model.config.vocab);
  EXPECT_LT(
      test::relative_difference(test::naive_logits(model, ids), test::engine_logits(model, ids)),
      1e-4);
}

TEST(Experts, GiveARowTheSameBitsInAnyGroup) {
  for (const ExpertsMlpConfig& mlp : expert_shapes()) {
    const test::PackedModel model(random_tensors(with_experts(mlp)));
    const auto ids = test::random_ids(60, model.config().vocab);
    const auto want =
        test::engine_rows(model, *make_cpu_backend({1, Isa::portable}), ids, std::ssize(ids));
    for (const Isa isa : supported_isas()) {
      for (const int threads : {1, 3}) {
        for (const std::int64_t chunk : {1, 7, 60}) {
          const auto backend = make_cpu_backend({threads, isa});
          EXPECT_EQ(want, test::engine_rows(model, *backend, ids, chunk))
              << isa_name(isa) << ", " << threads << " threads, chunk " << chunk;
        }
      }
    }
  }
}

TEST(Experts, OfAConfigurationAreReadAsTheyAreWritten) {
  for (const ExpertsMlpConfig& mlp : expert_shapes()) {
    const ModelConfig config = with_experts(mlp);
    EXPECT_EQ(config_from_json(parse_json(config_to_json(config).dump(), "text"), "again"), config);
    std::vector<std::string> features = {"layers", "experts"};
    if (mlp.sigmoid) features.emplace_back("router");
    EXPECT_EQ(required_features(config), features);
  }
  Json json = config_to_json(with_experts(expert_shapes().front()));
  Json::Array layers;
  for (const Json& layer : json["layers"]) layers.push_back(layer);
  layers[0]["mlp"]["active"] = 8;
  json["layers"] = layers;
  test::expect_error([&] { config_from_json(json, "file"); },
                     {"layers[0]: active experts = 8: expected 1 to 7"});
}

// The quantized linears are q, k, v, o, and three of each expert and of the shared expert.
TEST(Experts, ListTheirTensorsOnce) {
  const ModelConfig config = with_experts(expert_shapes()[4]);
  std::int64_t linears = 0, exact = 0;
  for (const TensorSpec& spec : layer_tensors(config, 0)) {
    linears += is_block_linear(spec.role) ? 1 : 0;
    exact += spec.role == TensorRole::exact_linear ? 1 : 0;
  }
  EXPECT_EQ(linears, 4 + 3 * 6 + 3);
  EXPECT_EQ(exact, 2);
}

}  // namespace
}  // namespace leq
