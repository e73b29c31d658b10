// Layers whose key biases are far larger than their keys keep wider keys.
#include "model/kv_layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "model/session.h"
#include "models_fixture.h"
#include "shared_data.h"

namespace leq {
namespace {

TEST(KvLayers, ALargeBiasStandsOutOfItsLayer) {
  std::vector<float> bias(64, 0.5f), whole(64, 1.0f), still(64, 1e-4f);
  EXPECT_FALSE(large_key_bias({}, {}));
  EXPECT_FALSE(large_key_bias(bias, whole));
  bias[7] = -7.5f;
  EXPECT_FALSE(large_key_bias(bias, whole)) << "keys are as large";
  bias[7] = -64.0f;
  EXPECT_TRUE(large_key_bias(bias, whole));
  EXPECT_FALSE(large_key_bias(bias, still)) << "it hardly turns within a block";
  for (float& b : bias) b = 60.0f;
  EXPECT_FALSE(large_key_bias(bias, whole)) << "all are alike";
}

std::vector<KvType> types_of(const std::filesystem::path& folder, KvType wanted) {
  const Model model(test::quantized(folder, "int8"), {});
  const auto backend = make_cpu_backend({1, Isa::portable_v3});
  RunLimits limits;
  limits.key_type = limits.value_type = wanted;
  Session session(model, *backend, resolve_limits(limits, model.config()));
  return session.cache().shape().layer_key_types;
}

TEST(KvLayers, TheFirstAndLastLayerOfTheBiasedModelAreWider) {
  LEQ_SHARED_OR_SKIP(biased, "models/qwen2-tiny-kbias");
  LEQ_SHARED_OR_SKIP(plain, "models/qwen2-tiny");
  const KvType four = KvType::int4, half = KvType::f16;
  EXPECT_EQ(types_of(biased, four), (std::vector{half, four, four, half}));
  // Its biases are in the pair that turns slowest.
  EXPECT_TRUE(types_of(biased, KvType::simq4).empty());
  EXPECT_TRUE(types_of(biased, half).empty());
  EXPECT_TRUE(types_of(plain, four).empty());
}

}  // namespace
}  // namespace leq
