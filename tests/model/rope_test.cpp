#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace leq {
namespace {

ModelConfig config_with(RopeScaling scaling) {
  ModelConfig config;
  config.layers.resize(1);
  config.head_dim = 64;
  config.context = 2048;
  config.layers[0].attention()->rope->scaling = scaling;
  return config;
}

RopeFrequencies frequencies(const ModelConfig& config, std::int64_t context) {
  return rope_frequencies(config, config.ropes().at(0), context);
}

double plain(int i, double base = 10000.0) { return std::pow(base, -2.0 * i / 64.0); }

// The tolerance for the formula's f32 steps is a few units in the last place.
constexpr double kRelative = 1e-6;

TEST(Rope, PlainFrequenciesArePowersOfTheBase) {
  const auto rope = frequencies(config_with({}), 2048);
  ASSERT_EQ(rope.inv_freq.size(), 32u);
  for (int i = 0; i < 32; ++i) EXPECT_NEAR(rope.inv_freq[i] / plain(i), 1.0, kRelative) << i;
  EXPECT_EQ(rope.attention_factor, 1.0f);
}

TEST(Rope, LinearScalingDividesEveryFrequency) {
  RopeScaling scaling;
  scaling.kind = RopeScalingKind::linear;
  scaling.factor = 4.0;
  const auto rope = frequencies(config_with(scaling), 2048);
  for (int i = 0; i < 32; ++i) EXPECT_NEAR(rope.inv_freq[i] / (plain(i) / 4), 1.0, kRelative) << i;
}

TEST(Rope, DynamicScalingRaisesTheBaseOnlyBeyondTheModelsContext) {
  RopeScaling scaling;
  scaling.kind = RopeScalingKind::dynamic;
  scaling.factor = 2.0;
  const auto within = frequencies(config_with(scaling), 1000);
  const auto beyond = frequencies(config_with(scaling), 4096);
  // factor * length / context - (factor - 1) = 2 * 2 - 1 = 3
  const double base = 10000.0 * std::pow(3.0, 64.0 / 62.0);
  for (int i = 0; i < 32; ++i) {
    EXPECT_NEAR(within.inv_freq[i] / plain(i), 1.0, kRelative) << i;
    EXPECT_NEAR(beyond.inv_freq[i] / plain(i, base), 1.0, kRelative) << i;
  }
  EXPECT_NE(beyond.note.find("4096"), std::string::npos);
}

TEST(Rope, Llama3KeepsFastFrequenciesAndDividesSlowOnes) {
  RopeScaling scaling;
  scaling.kind = RopeScalingKind::llama3;
  scaling.factor = 8.0;
  scaling.original_context = 8192;
  const auto rope = frequencies(config_with(scaling), 2048);
  int blended = 0;
  for (int i = 0; i < 32; ++i) {
    const double turns = 8192 * plain(i) / (2 * std::numbers::pi);
    const double ratio = rope.inv_freq[i] / plain(i);
    if (turns > 4.001) {
      EXPECT_NEAR(ratio, 1.0, kRelative) << i;
    } else if (turns < 0.999) {
      EXPECT_NEAR(ratio, 1.0 / 8, kRelative) << i;
    } else {
      const double keep = (turns - 1) / 3;
      EXPECT_NEAR(ratio, keep + (1 - keep) / 8, 1e-5) << i;
      ++blended;
    }
  }
  EXPECT_GT(blended, 0);
}

TEST(Rope, YarnEndsAreExtrapolatedAndInterpolated) {
  RopeScaling scaling;
  scaling.kind = RopeScalingKind::yarn;
  scaling.factor = 4.0;
  scaling.original_context = 2048;
  const auto rope = frequencies(config_with(scaling), 8192);
  EXPECT_NEAR(rope.inv_freq[0] / plain(0), 1.0, kRelative);
  EXPECT_NEAR(rope.inv_freq[31] / (plain(31) / 4), 1.0, kRelative);
  EXPECT_NEAR(rope.attention_factor, 0.1 * std::log(4.0) + 1.0, 1e-6);
  for (int i = 1; i < 32; ++i) EXPECT_LT(rope.inv_freq[i], rope.inv_freq[i - 1]);
}

TEST(Rope, YarnTakesABetaOfZeroAsNotGiven) {
  RopeScaling scaling;
  scaling.kind = RopeScalingKind::yarn;
  scaling.factor = 4.0;
  scaling.original_context = 2048;
  const auto usual = frequencies(config_with(scaling), 8192);
  scaling.beta_fast = scaling.beta_slow = 0;
  EXPECT_EQ(frequencies(config_with(scaling), 8192).inv_freq, usual.inv_freq);
}

TEST(Rope, YarnTakesAGivenAttentionFactorAndMscale) {
  RopeScaling scaling;
  scaling.kind = RopeScalingKind::yarn;
  scaling.factor = 4.0;
  scaling.original_context = 2048;
  scaling.attention_factor = 1.5;
  EXPECT_EQ(frequencies(config_with(scaling), 8192).attention_factor, 1.5f);
  scaling.attention_factor = 0;
  scaling.mscale = 1.0;
  scaling.mscale_all_dim = 0.5;
  const double want = (0.1 * std::log(4.0) + 1.0) / (0.05 * std::log(4.0) + 1.0);
  EXPECT_NEAR(frequencies(config_with(scaling), 8192).attention_factor, want, 1e-6);
}

}  // namespace
}  // namespace leq
