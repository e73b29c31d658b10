// Tests the scheme and the input format of each tensor if the user specifies no input format.
#include "quantize/methods/method.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "errors.h"

namespace leq {
namespace {

ModelConfig model_of(std::int64_t width, bool tied) {
  ModelConfig config;
  config.layers = UniformLayers{.count = 2, .mlp = {.hidden = 2 * width}}.layers();
  config.width = width;
  config.heads = config.kv_heads = 4;
  config.head_dim = width / 4;
  config.vocab = 100;
  config.tied = tied;
  return config;
}

TensorPlanner planner_of(const ModelConfig& config, const char* type,
                         ActChoice act = ActChoice::automatic,
                         std::vector<TypeOverride> overrides = {}) {
  PlanRequest request;
  request.type = require_scheme(type, "test");
  request.act = act;
  request.overrides = std::move(overrides);
  return make_planner(request, config);
}

ActKind act_in(const TensorPlanner& planner, const char* name, TensorRole role) {
  return planner(name, role).act;
}

TEST(TensorPlan, InputsHaveAScaleFor128ColumnsAndInNarrowModels32ForDownAndHead) {
  for (const std::int64_t width : {576, 2048}) {
    const TensorPlanner plan = planner_of(model_of(width, false), "int8");
    const ActKind fine = width < 2048 ? ActKind::g32 : ActKind::g128;
    EXPECT_EQ(act_in(plan, "layers.1.q", TensorRole::normed_linear), ActKind::g128);
    EXPECT_EQ(act_in(plan, "layers.1.o", TensorRole::mixer_output), ActKind::g128);
    EXPECT_EQ(act_in(plan, "layers.1.up", TensorRole::normed_linear), ActKind::g128);
    EXPECT_EQ(act_in(plan, "layers.1.down", TensorRole::mlp_output), fine);
    EXPECT_EQ(act_in(plan, "head", TensorRole::head), fine);
    EXPECT_EQ(act_in(plan, "token_embedding", TensorRole::token_embedding), ActKind::none);
    const TensorPlanner tied = planner_of(model_of(width, true), "int8");
    EXPECT_EQ(act_in(tied, "token_embedding", TensorRole::token_embedding), fine);
  }
}

// Each group of the weights must be within one group of the inputs.
TEST(TensorPlan, GroupsOfInputsAreNoFinerThanThoseOfWeights) {
  const ModelConfig config = model_of(576, true);
  for (const char* type : {"int8-g128", "int4-g64", "uint4-g128"}) {
    EXPECT_EQ(act_in(planner_of(config, type), "layers.0.down", TensorRole::mlp_output),
              ActKind::g128)
        << type;
  }
  EXPECT_EQ(act_in(planner_of(config, "int4-g32"), "layers.0.down", TensorRole::mlp_output),
            ActKind::g32);
  const QuantScheme coarse = require_scheme("int8-g128", "test");
  const TensorPlanner table =
      planner_of(config, "int8", ActChoice::automatic, {{"^token_embedding$", coarse}});
  EXPECT_EQ(act_in(table, "token_embedding", TensorRole::token_embedding), ActKind::g128);
  const TensorPlanner down = planner_of(config, "int8", ActChoice::automatic, {{"down$", coarse}});
  EXPECT_EQ(act_in(down, "layers.0.down", TensorRole::mlp_output), ActKind::g128);
  test::expect_error([&] { planner_of(config, "int4-g64", ActChoice::g32); },
                     {"groups of 64 weights"});
}

TEST(TensorPlan, AChoiceOfInputsHoldsForAllBlockLinears) {
  const TensorPlanner plan = planner_of(model_of(576, true), "int8-g32", ActChoice::g32);
  EXPECT_EQ(act_in(plan, "layers.0.q", TensorRole::normed_linear), ActKind::g32);
  EXPECT_EQ(act_in(plan, "layers.0.gate", TensorRole::normed_linear), ActKind::g32);
  EXPECT_EQ(act_in(plan, "layers.0.o", TensorRole::mixer_output), ActKind::g32);
}

// As codes of a checkpoint that are carried over have their inputs (convert/import.h).
TEST(TensorPlan, AnOverrideMayBringItsInputs) {
  const ModelConfig config = model_of(576, true);
  const QuantScheme fine = require_scheme("uint8-g32", "test");
  const TypeOverride with_inputs = {"^layers", fine, ActKind::g32};
  const auto q_of = [&](ActChoice act, std::vector<TypeOverride> more = {}) {
    more.insert(more.begin(), with_inputs);
    const TensorPlanner plan = planner_of(config, "int8", act, std::move(more));
    EXPECT_EQ(act_in(plan, "layers.1.q", TensorRole::normed_linear),
              act_in(plan, "layers.1.v", TensorRole::normed_linear));
    return plan("layers.1.q", TensorRole::normed_linear);
  };
  EXPECT_EQ(q_of(ActChoice::automatic).act, ActKind::g32);
  EXPECT_EQ(q_of(ActChoice::g128).act, ActKind::g128);
  EXPECT_EQ(q_of(ActChoice::row).act, ActKind::row);
  EXPECT_EQ(q_of(ActChoice::none).act, ActKind::none);
  // A later type takes the inputs that the earlier one brought, where it fits them.
  const TensorPlan mixed =
      q_of(ActChoice::automatic, {{"\\.q$", require_scheme("int4-g32", "test")}});
  EXPECT_EQ(scheme_name(mixed.scheme), "int4-g32");
  EXPECT_EQ(mixed.act, ActKind::g32);
  EXPECT_EQ(q_of(ActChoice::automatic, {{"\\.(q|k|v)$", require_scheme("int4-g128", "test")}}).act,
            ActKind::g128);
  EXPECT_EQ(q_of(ActChoice::automatic, {{"^layers", require_scheme("f16", "test")}}).act,
            ActKind::none);
}

}  // namespace
}  // namespace leq
