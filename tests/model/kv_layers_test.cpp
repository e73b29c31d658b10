// Tests the rule that layers with key biases far larger than their keys get a wider key type.
#include "model/kv_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
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
  EXPECT_FALSE(large_key_bias(bias, still)) << "it hardly rotates within a block";
  for (float& b : bias) b = 60.0f;
  EXPECT_FALSE(large_key_bias(bias, whole)) << "all are alike";
  bias[7] = 100.0f;
  EXPECT_FALSE(large_key_bias(bias, whole)) << "not eight times the others";
}

std::vector<KvType> types_of(const std::filesystem::path& folder, KvType wanted) {
  const Model model(test::quantized(folder, "int8"), {});
  const auto backend = make_cpu_backend({1, chosen_isa()});
  RunLimits limits;
  limits.key_type = limits.value_type = wanted;
  Session session(model, *backend, resolve_limits(limits, model.config()));
  return session.cache().shape().layer_key_types;
}

// This model's biases are in the pair of channels that rotates slowest, so subtracting their mean
// removes them from codes with scales by token.
TEST(KvLayers, SlowBiasesOfTheBiasedModelNeedNoWiderKeys) {
  LEQ_SHARED_OR_SKIP(biased, "models/qwen2-tiny-kbias");
  LEQ_SHARED_OR_SKIP(plain, "models/qwen2-tiny");
  for (const KvType type : {KvType::int8, KvType::int4, KvType::simq4, KvType::f16}) {
    EXPECT_TRUE(types_of(biased, type).empty());
    EXPECT_TRUE(types_of(plain, type).empty());
  }
}

ModelConfig turning(std::int64_t context) {
  ModelConfig config;
  config.kv_heads = 2;
  config.heads = 4;
  config.head_dim = 8;
  config.context = context;
  config.layers.resize(2);
  return config;
}

// Adds a large bias to one rotary pair of the first head; pair 0 rotates by 1 radian per position.
Weights with_bias(const ModelConfig& config, std::size_t pair, float size) {
  Weights weights;
  weights.layers.resize(2);
  for (LayerWeights& layer : weights.layers) layer.attention().key_bias.assign(16, 0.5f);
  weights.layers[1].attention().key_bias[pair] = size;
  for (LayerWeights& layer : weights.layers) {
    AttentionWeights& attention = layer.attention();
    attention.key_centre = key_centre(config, attention.config, attention.key_bias);
  }
  return weights;
}

// Returns whether layer 1, which has the bias, gets wider keys; layer 0 never gets these.
bool is_widened(const ModelConfig& config, std::size_t pair, float size, KvType type) {
  std::vector<KvType> types(2, type);
  widen_keys(config, with_bias(config, pair, size), types);
  EXPECT_EQ(types[0], type);
  EXPECT_TRUE(types[1] == type || types[1] == KvType::f16);
  return types[1] != type;
}

TEST(KvLayers, BiasesThatTurnFastNeedWiderKeysUnderEveryType) {
  const ModelConfig config = turning(4096);
  for (const KvType type : {KvType::int8, KvType::int4, KvType::simq4}) {
    EXPECT_TRUE(is_widened(config, 0, 64, type));
    EXPECT_FALSE(is_widened(config, 0, 4, type));
  }
  // Pair 3 rotates by 1 radian in 1,000 positions: not within a block, but within the context.
  EXPECT_FALSE(is_widened(config, 3, 64, KvType::simq4));
  EXPECT_TRUE(is_widened(config, 3, 64, KvType::int8));
  const ModelConfig brief = turning(64);
  EXPECT_FALSE(is_widened(brief, 3, 64, KvType::int8));
  EXPECT_FALSE(is_widened(config, 0, 64, KvType::f16));
  EXPECT_TRUE(keys_are_centred(KvType::int4) && keys_are_centred(KvType::int8));
  EXPECT_FALSE(keys_are_centred(KvType::f16) || keys_are_centred(KvType::simq4));
}

TEST(KvLayers, EachLayersBiasTurnsByItsOwnRope) {
  ModelConfig config = turning(4096);
  config.layers[0].attention()->rope->theta = 1e6;  // pair 3: 1 radian in 31,623 positions
  config.layers[1].attention()->rope->theta = 1.0;  // all pairs: 1 radian per position
  EXPECT_TRUE(is_widened(config, 3, 64, KvType::simq4));
  std::swap(config.layers[0], config.layers[1]);
  EXPECT_FALSE(is_widened(config, 3, 64, KvType::simq4));
}

// A session with separate KV types for some layers, which is fed 150 tokens.
class OwnTypes {
 public:
  OwnTypes(const Model& model, KvType base, std::string_view layers)
      : backend_(make_cpu_backend({2, chosen_isa()})) {
    RunLimits limits;
    limits.context = 256;
    limits.key_type = limits.value_type = base;
    if (!layers.empty()) limits.kv_layers = parse_kv_layers(layers, Setting{"kv_layers"});
    session_.emplace(model, *backend_, resolve_limits(limits, model.config()));
  }

  std::vector<float> logits() {
    std::vector<Token> tokens;
    for (Token i = 0; i < 150; ++i) tokens.push_back(3 + i * 7 % 500);
    const auto found = session_->feed(0, tokens);
    return {found.begin(), found.end()};
  }
  Session& session() { return *session_; }

 private:
  std::unique_ptr<Backend> backend_;
  std::optional<Session> session_;
};

TEST(KvLayers, EachLayerMayHaveTypesOfItsOwn) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");  // 6 layers
  const Model model(test::quantized(folder, "int8"), {});
  const auto logits = [&](KvType base, std::string_view layers) {
    return OwnTypes(model, base, layers).logits();
  };
  // All layers are listed, so the base type must not matter; it only adds f16 copies.
  EXPECT_EQ(logits(KvType::simq4, "0-5=int8"), logits(KvType::int8, ""));
  EXPECT_EQ(logits(KvType::int8, "0,2-5,1=simq4"), logits(KvType::simq4, ""));
  EXPECT_NE(logits(KvType::simq4, "0=int8"), logits(KvType::simq4, ""));
  EXPECT_NE(logits(KvType::simq4, "0=int8/simq4"), logits(KvType::simq4, "0=int8"));

  OwnTypes mixed(model, KvType::simq2, "1-2=int4/f16");
  const KvShape& shape = mixed.session().cache().shape();
  for (std::int64_t layer = 0; layer < 6; ++layer) {
    const bool own = layer == 1 || layer == 2;
    EXPECT_EQ(shape.type(layer, KvPart::keys), own ? KvType::int4 : KvType::simq2);
    EXPECT_EQ(shape.type(layer, KvPart::values), own ? KvType::f16 : KvType::simq2);
  }
  EXPECT_EQ(mixed.session().plan().kv_bytes,
            plan_memory(0, model.config(), mixed.session().weights(),
                        make_cpu_backend({2, chosen_isa()})->layout(), mixed.session().limits(),
                        place_of(model.config(), 0, 1))
                .kv_bytes);
}

TEST(KvLayers, ASavedSequenceKnowsTheTypesOfItsLayers) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  OwnTypes one(model, KvType::simq4, "2=int8"), same(model, KvType::simq4, "2=int8"),
      other(model, KvType::simq4, "3=int8"), values(model, KvType::simq4, "2=int8/f16");
  (void)one.logits();
  const std::vector<std::byte> saved = one.session().cache().save(0);
  same.session().cache().load(0, saved, "test");
  const std::vector<Token> next = {42};
  const auto want = one.session().feed(0, next), found = same.session().feed(0, next);
  EXPECT_TRUE(std::ranges::equal(want, found));
  EXPECT_THROW(other.session().cache().load(0, saved, "test"), Error);
  EXPECT_THROW(values.session().cache().load(0, saved, "test"), Error);
}

// Compares with the mean over all positions, computed one by one.
TEST(KvLayers, TheCentreIsTheMeanOfTheTurnedBias) {
  const ModelConfig config = turning(100);
  std::vector<float> bias;
  for (int c = 0; c < 16; ++c) bias.push_back(static_cast<float>(c * c % 7) - 2.5f);
  std::vector<double> want(16, 0.0);
  for (int position = 0; position < 100; ++position) {
    for (std::size_t head = 0; head < 16; head += 8) {
      for (std::size_t i = 0; i < 4; ++i) {
        const double angle = position * std::pow(10000.0, -static_cast<double>(i) / 4);
        const double a = static_cast<double>(bias[head + i]),
                     b = static_cast<double>(bias[head + 4 + i]);
        want[head + i] += (a * std::cos(angle) - b * std::sin(angle)) / 100;
        want[head + 4 + i] += (b * std::cos(angle) + a * std::sin(angle)) / 100;
      }
    }
  }
  const AttentionConfig attention;
  const std::vector<float> centre = key_centre(config, attention, bias);
  ASSERT_EQ(centre.size(), want.size());
  for (std::size_t c = 0; c < 16; ++c) {
    EXPECT_NEAR(static_cast<double>(centre[c]), want[c], 1e-5) << c;
  }
  EXPECT_EQ(key_centre(config, {.rope = std::nullopt}, bias), bias);
  EXPECT_TRUE(key_centre(config, {.qk_norm = true}, bias).empty());
  EXPECT_TRUE(key_centre(config, attention, std::vector<float>(16, 0.0f)).empty());
  EXPECT_TRUE(key_centre(config, attention, {}).empty());
}

}  // namespace
}  // namespace leq
