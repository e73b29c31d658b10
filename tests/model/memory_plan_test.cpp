#include "model/memory_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "case_names.h"
#include "model/session.h"
#include "models_fixture.h"
#include "runtime/make_backend.h"
#include "shared_data.h"

namespace leq {
namespace {

class MemoryPlanOf : public ::testing::TestWithParam<const char*> {};

TEST_P(MemoryPlanOf, EqualsTheEnginesOwnPeakToTheByte) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam());
  for (const char* type : {"f32", "int8", "int4-g128"}) {
    for (const KvType kv : {KvType::f32, KvType::f16, KvType::int8, KvType::int4, KvType::simq4}) {
      for (const int threads : {1, 2}) {
        const Model model(test::quantized(folder, type), {});
        const auto backend = make_backend({"cpu", threads});
        RunLimits limits;
        limits.context = 300;
        limits.sequences = 2;
        limits.batch_tokens = 70;
        limits.output_tokens = 3;
        limits.key_type = limits.value_type = kv;
        limits = resolve_limits(limits, model.config());
        const std::size_t before = backend->memory().allocated();
        Session session(model, *backend, limits);
        std::vector<Token> ids(140, 5);
        session.feed(0, ids);
        session.feed(1, ids);
        EXPECT_EQ(
            session.plan().kv_bytes + session.plan().state_bytes + session.plan().scratch_bytes,
            backend->memory().peak() - before)
            << type << ", " << kv_type_name(kv) << ", " << threads << " threads";
        EXPECT_EQ(session.plan().weight_bytes, model.file().memory_bytes());
      }
    }
  }
}

// Compares part by part, because a sum could be right although two parts are wrong.
TEST_P(MemoryPlanOf, EveryPartTakesWhatWasCountedWithoutABackend) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam());
  for (const char* type : {"f32", "int8", "int4-g128"}) {
    for (const int threads : {1, 3}) {
      const Model model(test::quantized(folder, type), {.mode = LoadMode::map});
      RunLimits limits;
      limits.context = 200;
      limits.sequences = 2;
      limits.batch_tokens = 33;
      limits = resolve_limits(limits, model.config());
      const auto layout = make_layout({"cpu", threads});
      const MemoryPlan plan = MemoryPlanner(model, *layout).plan(limits);
      const auto backend = make_backend({"cpu", threads});
      const DeviceMemory& memory = backend->memory();
      const Weights weights = bind_weights(model.file(), model.config(), backend->memory());
      EXPECT_EQ(memory.allocated(), 0u) << "the file is borrowed";
      const KvCache cache(backend->memory(), backend->layout(), kv_shape(model.config(), limits));
      EXPECT_EQ(memory.allocated(), plan.kv_bytes) << type;
      const auto states = make_fixed_states(backend->memory(), model.config(), limits,
                                            place_of(model.config(), 0, 1).own());
      EXPECT_EQ(memory.allocated() - plan.kv_bytes, plan.state_bytes) << type;
      const Transformer transformer(model.config(), weights, *backend, forward_limits(limits));
      EXPECT_EQ(memory.allocated() - plan.kv_bytes - plan.state_bytes, plan.scratch_bytes) << type;
      EXPECT_EQ(plan.weight_bytes, model.file().memory_bytes());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MemoryPlanOf,
                         ::testing::Values("storyteller", "gpt2-tiny", "mistral-tiny", "qwen3-tiny",
                                           "qwen35-tiny", "qwen3moe-tiny"),
                         test::named_by_text);

ModelConfig small() {
  ModelConfig config;
  config.context = 2048;
  return config;
}

TEST(KvShapeOf, LayersThatNoLayerReadsBeyondAWindowHaveTheWidest) {
  ModelConfig config = small();
  config.heads = config.kv_heads = 1;
  config.head_dim = 16;
  const auto windows = [&](std::vector<AttentionConfig> layers) {
    config.layers.clear();
    for (const AttentionConfig& layer : layers) config.layers.push_back({layer, DenseMlpConfig()});
    const KvShape shape = kv_shape(config, resolve_limits({}, config));
    return std::pair(shape.window, shape.layer_windowed);
  };
  const AttentionConfig narrow = {.window = 5}, wide = {.window = 9}, full;
  AttentionConfig reader = full;
  reader.kv_of = 0;
  using Flags = std::vector<bool>;
  EXPECT_EQ(windows({full, full}), std::pair(std::int64_t{0}, Flags()));
  EXPECT_EQ(windows({narrow, wide}), std::pair(std::int64_t{9}, Flags()));
  EXPECT_EQ(windows({narrow, full, wide}), std::pair(std::int64_t{9}, Flags({true, false, true})));
  EXPECT_EQ(windows({narrow, wide, reader}), std::pair(std::int64_t{9}, Flags({false, true})));
  EXPECT_EQ(windows({narrow, reader}), std::pair(std::int64_t{0}, Flags()));
}

TEST(RunLimitsOf, DefaultContextIsTheModelsUpTo8192) {
  EXPECT_EQ(resolve_limits({}, small()).context, 2048);
  ModelConfig large = small();
  large.context = 131072;
  EXPECT_EQ(resolve_limits({}, large).context, 8192);
}

TEST(RunLimitsOf, RefusesAContextBeyondTheModel) {
  RunLimits limits;
  limits.context = 4096;
  EXPECT_THROW(resolve_limits(limits, small()), Error);
  limits.sequences = 2;
  EXPECT_EQ(resolve_limits(limits, small()).context, 4096);
  limits.context = 2;
  EXPECT_EQ(resolve_limits(limits, small()).sequence_context, 1);
  for (const std::int64_t context : {1, -1}) {
    limits.context = context;
    EXPECT_THROW(resolve_limits(limits, small()), Error);
  }
}

TEST(RunLimitsOf, StretchedRopeAllowsMoreContext) {
  ModelConfig config = small();
  config.layers.resize(1);
  for (LayerConfig& layer : config.layers) {
    layer.attention()->rope->scaling = {.kind = RopeScalingKind::dynamic, .factor = 4};
  }
  RunLimits limits;
  limits.context = 8192;
  EXPECT_EQ(resolve_limits(limits, config).context, 8192);
  limits.context = 8193;
  EXPECT_THROW(resolve_limits(limits, config), Error);
}

}  // namespace
}  // namespace leq
