// Folds must not change the function: the naive double transformer compares logits with the
// original tensors and with the rewritten tensors.
#include "quantize/rewrites/fold.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "case_names.h"
#include "reference/random_models.h"
#include "shared_data.h"

namespace leq {
namespace {

// Returns different scales from 1/3 to 3 in random order.
std::vector<float> wide_scales(std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> scales;
  for (std::int64_t i = 0; i < count; ++i) {
    scales.push_back(std::exp(1.1f * (2 * random.uniform() - 1)));
  }
  return scales;
}

void expect_wide(std::span<const float> scales, const std::string& where) {
  const auto [low, high] = std::ranges::minmax(scales);
  EXPECT_GE(high / low, 4.0f) << where;
}

// Checks that every tensor of the site has changed values.
void expect_changed(const BlockTensors& before, const BlockTensors& after,
                    const SmoothingSite& site) {
  std::vector<std::string> parts = site.consumers;
  if (site.producer != Producer::run_time) parts.push_back(site.producer_part);
  for (const std::string& part : parts) {
    const auto& a = before.at(part).values;
    const auto& b = after.at(part).values;
    ASSERT_EQ(a.size(), b.size());
    std::size_t changed = 0;
    for (std::size_t i = 0; i < a.size(); ++i) changed += a[i] != b[i] ? 1u : 0u;
    EXPECT_GT(changed, a.size() / 2) << site.name << ", " << part;
  }
}

class FoldOf : public ::testing::TestWithParam<test::RandomModel> {};

TEST_P(FoldOf, EachSiteAloneLeavesTheLogits) {
  const test::ModelTensors before = test::make(GetParam());
  const auto ids = test::random_ids(20, before.config.vocab);
  const auto want = test::naive_logits(before, ids);
  for (std::size_t l = 0; l < before.blocks.size(); ++l) {
    for (const SmoothingSite& site : smoothing_sites(before.config, static_cast<std::int64_t>(l))) {
      test::ModelTensors after = before;
      const auto scales = wide_scales(site.scales, 17 + l);
      expect_wide(scales, site.name);
      fold_scales(after.blocks[l], site, scales);
      expect_changed(before.blocks[l], after.blocks[l], site);
      EXPECT_LT(test::relative_difference(want, test::naive_logits(after, ids)),
                test::kSameFunction)
          << site.name << " of layer " << l;
    }
  }
}

TEST_P(FoldOf, AllSitesTogetherLeaveTheLogits) {
  const test::ModelTensors before = test::make(GetParam());
  const auto ids = test::random_ids(20, before.config.vocab);
  test::ModelTensors after = before;
  for (std::size_t l = 0; l < after.blocks.size(); ++l) {
    for (const SmoothingSite& site : smoothing_sites(before.config, static_cast<std::int64_t>(l))) {
      fold_scales(after.blocks[l], site, wide_scales(site.scales, 40 + l));
      fold_scales(after.blocks[l], site, wide_scales(site.scales, 80 + l));
    }
  }
  EXPECT_LT(
      test::relative_difference(test::naive_logits(before, ids), test::naive_logits(after, ids)),
      test::kSameFunction);
}

INSTANTIATE_TEST_SUITE_P(Families, FoldOf, ::testing::ValuesIn(test::random_models()),
                         [](const auto& item) { return item.param.name; });

TEST(SmoothingSites, AreInTheOrderOfTheBlockAndShareScalesBehindKvHeads) {
  ModelConfig config;
  config.width = 12;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 2;
  config.layers = {{AttentionConfig(), DenseMlpConfig{.hidden = 20}}};
  const auto sites = smoothing_sites(config);
  ASSERT_EQ(sites.size(), 4u);
  EXPECT_EQ(sites[0].consumers, (std::vector<std::string>{"q", "k", "v"}));
  EXPECT_EQ(sites[1].scale_of, (std::vector<std::int32_t>{0, 1, 0, 1, 2, 3, 2, 3}));
  EXPECT_EQ(sites[1].scales, 4);
  EXPECT_EQ(sites[2].consumers, (std::vector<std::string>{"gate", "up"}));
  EXPECT_EQ(sites[3].producer_part, "up");
  config.layers[0].dense_mlp()->gated = false;
  config.layers[0].dense_mlp()->activation = Activation::gelu_tanh;
  EXPECT_EQ(smoothing_sites(config)[3].producer, Producer::run_time);
}

// The q and k rows depend on queries and keys, so only the rows of v may absorb the scales of o.
TEST(FoldScales, ValuesIntoOutputTouchesNothingElse) {
  const test::ModelTensors model = test::make(test::random_models()[0]);
  BlockTensors block = model.blocks[0];
  const auto site = smoothing_sites(model.config)[1];
  fold_scales(block, site, wide_scales(site.scales, 5));
  for (const auto& [part, matrix] : model.blocks[0].parts) {
    const bool touched = part == "v" || part == "v.bias" || part == "o";
    EXPECT_EQ(matrix.values != block.at(part).values, touched) << part;
  }
}

TEST(FoldScales, RefusesScalesThatCannotBeDividedBy) {
  const test::ModelTensors model = test::make(test::random_models()[2]);
  const auto site = smoothing_sites(model.config)[0];
  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    BlockTensors block = model.blocks[0];
    auto scales = wide_scales(site.scales, 5);
    scales[3] = bad;
    EXPECT_THROW(fold_scales(block, site, scales), Error) << bad;
  }
  BlockTensors block = model.blocks[0];
  EXPECT_THROW(fold_scales(block, site, wide_scales(site.scales - 1, 5)), Error);
}

// Returns SmoothQuant's s = sqrt(max|x| / max|w|) (alpha 0.5) from the naive transformer's inputs,
// alternately halved and doubled unless the trained inputs alone differ by a factor of 4.
std::vector<float> half_alpha_scales(const SmoothingSite& site, const BlockTensors& block,
                                     const std::vector<double>& absmax) {
  std::vector<double> x(static_cast<std::size_t>(site.scales), 1e-5), w(x);
  for (std::size_t k = 0; k < site.scale_of.size(); ++k) {
    const auto s = static_cast<std::size_t>(site.scale_of[k]);
    x[s] = std::max(x[s], absmax[k]);
    for (const std::string& part : site.consumers) {
      const Matrix& weight = block.at(part);
      for (std::size_t n = k; n < weight.values.size(); n += site.scale_of.size()) {
        w[s] = std::max(w[s], std::abs(double{weight.values[n]}));
      }
    }
  }
  std::vector<float> scales;
  for (std::size_t s = 0; s < x.size(); ++s) {
    scales.push_back(static_cast<float>(std::sqrt(x[s] / w[s])));
  }
  const auto [low, high] = std::ranges::minmax(scales);
  for (std::size_t s = 0; high / low < 4 && s < scales.size(); ++s) scales[s] *= s % 2 ? 2 : 0.5f;
  return scales;
}

class FoldOfTrained : public ::testing::TestWithParam<const char*> {};

TEST_P(FoldOfTrained, HalfAlphaScalesLeaveTheLogits) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam());
  const test::ModelTensors before = test::read_tensors(import_hf(folder));
  const auto ids = test::random_ids(12, before.config.vocab);
  const auto original = test::naive_transformer(before);
  const auto want = original.forward(ids);
  test::ModelTensors after = before;
  for (std::size_t l = 0; l < after.blocks.size(); ++l) {
    for (const SmoothingSite& site : smoothing_sites(before.config, static_cast<std::int64_t>(l))) {
      const std::string reader = "layers." + std::to_string(l) + "." + site.consumers[0];
      const auto seen = original.input_absmax().find(reader);
      if (seen == original.input_absmax().end()) continue;  // an expert without tokens
      const auto scales = half_alpha_scales(site, before.blocks[l], seen->second);
      expect_wide(scales, reader);
      const BlockTensors unfolded = after.blocks[l];
      fold_scales(after.blocks[l], site, scales);
      expect_changed(unfolded, after.blocks[l], site);
    }
  }
  EXPECT_LT(test::relative_difference(want, test::naive_logits(after, ids)), test::kSameFunction);
}

INSTANTIATE_TEST_SUITE_P(Models, FoldOfTrained, testing::ValuesIn(test::kTrainedModels),
                         test::named_by_text);

}  // namespace
}  // namespace leq
