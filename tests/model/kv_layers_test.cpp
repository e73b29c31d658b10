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
  std::vector<float> bias(64, 0.5f);
  EXPECT_FALSE(large_key_bias({}));
  EXPECT_FALSE(large_key_bias(bias));
  bias[7] = -7.5f;
  EXPECT_FALSE(large_key_bias(bias)) << "keys are as large";
  bias[7] = -64.0f;
  EXPECT_TRUE(large_key_bias(bias));
  for (float& b : bias) b = 60.0f;
  EXPECT_FALSE(large_key_bias(bias)) << "all are alike";
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
  const KvType four = KvType::simq4, half = KvType::f16;
  EXPECT_EQ(types_of(biased, four), (std::vector{half, four, four, half}));
  EXPECT_EQ(types_of(biased, KvType::int4),
            (std::vector{half, KvType::int4, KvType::int4, half}));
  EXPECT_TRUE(types_of(biased, half).empty());
  EXPECT_TRUE(types_of(plain, four).empty());
}

}  // namespace
}  // namespace leq
