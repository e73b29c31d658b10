// Rotation must not change the function: logits of the naive double transformer with the original
// tensors are compared with the engine's with the rotated tensors.
#include "quantize/rewrites/rotate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/cpu_backend.h"
#include "base/json.h"
#include "case_names.h"
#include "format/leq_writer.h"
#include "model/rotation.h"
#include "quantize/rewrites/fold.h"
#include "reference/random_models.h"
#include "shared_data.h"
#include "temporary_folder.h"

namespace leq {
namespace {

constexpr std::uint64_t kSeed = 0x9876543210fedcba;

test::ModelTensors rotated_tensors(const test::ModelTensors& before, std::uint64_t seed) {
  test::ModelTensors after = before;
  after.config = rotated(before.config, seed);
  for (std::size_t l = 0; l < after.blocks.size(); ++l) {
    rotate_block(after.blocks[l], before.config, after.config.rotation,
                 static_cast<std::int64_t>(l));
  }
  return after;
}

// Largest |w| over the root mean square, in the worst column of a weight, which a rotation reduces.
double peak(const Matrix& weight) {
  std::vector<double> largest(static_cast<std::size_t>(weight.columns));
  double squares = 0;
  for (std::size_t i = 0; i < weight.values.size(); ++i) {
    const double w = std::abs(double{weight.values[i]});
    squares += w * w;
    double& column = largest[i % largest.size()];
    column = std::max(column, w);
  }
  const double mean = squares / static_cast<double>(weight.values.size());
  return *std::ranges::max_element(largest) / std::sqrt(mean);
}

double energy(const Matrix& weight) {
  double squares = 0;
  for (const float w : weight.values) squares += double{w} * double{w};
  return squares;
}

class RotationOf : public ::testing::TestWithParam<test::RandomModel> {};

TEST_P(RotationOf, LeavesTheLogits) {
  const test::ModelTensors before = test::make(GetParam());
  const auto ids = test::random_ids(20, before.config.vocab);
  const auto want = test::naive_logits(before, ids);
  for (const std::uint64_t seed : {kSeed, std::uint64_t{0}}) {
    const test::ModelTensors after = rotated_tensors(before, seed);
    EXPECT_LT(test::relative_difference(want, test::engine_logits(after, ids)),
              test::kSameFunction);
  }
}

TEST_P(RotationOf, ChangesEveryWeightAndKeepsTheTablesOutside) {
  const test::ModelTensors before = test::make(GetParam());
  const test::ModelTensors after = rotated_tensors(before, kSeed);
  for (const char* part : {"q", "k", "v", "o", "gate", "up", "down", "router", "experts.0.gate",
                           "experts.1.up", "experts.2.down"}) {
    if (!before.blocks[1].has(part)) continue;
    const auto& a = before.blocks[1].at(part).values;
    const auto& b = after.blocks[1].at(part).values;
    std::size_t changed = 0;
    for (std::size_t i = 0; i < a.size(); ++i) changed += a[i] != b[i] ? 1u : 0u;
    EXPECT_GT(changed, a.size() * 9 / 10) << part;
  }
  for (const auto& [part, matrix] : before.outside.parts) {
    EXPECT_EQ(matrix.values, after.outside.parts.at(part).values) << part;
  }
}

TEST_P(RotationOf, FoldsBeforeAndBehindItLeaveTheLogits) {
  const test::ModelTensors before = test::make(GetParam());
  const auto ids = test::random_ids(20, before.config.vocab);
  Random random(8);
  const auto fold_all = [&](BlockTensors& block, std::int64_t layer) {
    for (const SmoothingSite& site : smoothing_sites(before.config, layer)) {
      if (site.producer == Producer::run_time) continue;  // done by the engine, tested there
      std::vector<float> scales;
      for (std::int64_t i = 0; i < site.scales; ++i) {
        scales.push_back(std::exp(1.1f * (2 * random.uniform() - 1)));
      }
      fold_scales(block, site, scales);
    }
  };
  test::ModelTensors after = before;
  const ModelConfig folded = with_attention_biases_folded(before.config);
  after.config = rotated(folded, kSeed);
  for (std::int64_t l = 0; l < before.config.layer_count(); ++l) {
    BlockTensors& block = after.blocks[static_cast<std::size_t>(l)];
    fold_attention_biases(block, before.config, l);
    fold_all(block, l);
    rotate_block(block, folded, after.config.rotation, l);
    fold_all(block, l);
  }
  EXPECT_LT(
      test::relative_difference(test::naive_logits(before, ids), test::engine_logits(after, ids)),
      test::kSameFunction);
}

TEST_P(RotationOf, LogitsAreEqualForAnyIsaThreadsAndChunk) {
  const test::ModelTensors after = rotated_tensors(test::make(GetParam()), kSeed);
  const test::PackedModel packed(after);
  const auto ids = test::random_ids(20, after.config.vocab);
  const auto portable = make_cpu_backend({1, Isa::portable});
  const auto want = test::engine_rows(packed, *portable, ids, 20);
  for (const Isa isa : supported_isas()) {
    const auto backend = make_cpu_backend({2, isa});
    EXPECT_EQ(want, test::engine_rows(packed, *backend, ids, 7)) << isa_name(isa);
  }
}

TEST_P(RotationOf, TheMemoryPlanIsTheEnginesPeak) {
  const test::ModelTensors after = rotated_tensors(test::make(GetParam()), kSeed);
  const test::PackedModel packed(after);
  const auto backend = make_cpu_backend({2, Isa::portable});
  RunLimits limits;
  limits.context = 40;
  limits = resolve_limits(limits, after.config);
  Session session(after.config, packed.bind(*backend), 0, *backend, limits);
  session.feed(0, test::random_ids(30, after.config.vocab));
  EXPECT_EQ(session.plan().kv_bytes + session.plan().scratch_bytes, backend->memory().peak());
}

// A file of the rotated tensors, with the configuration and the required feature, has their logits.
TEST_P(RotationOf, AFileOfItComputesTheSame) {
  const test::ModelTensors after = rotated_tensors(test::make(GetParam()), kSeed);
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "rotated.leq";
  LeqWriter writer(path);
  for (const TensorSpec& spec : tensor_list(after.config)) {
    const Matrix& matrix = *after.find(spec.name);
    writer.add_tensor(spec.name, spec.shape,
                      pack_weight(matrix.values, matrix.rows, matrix.columns, QuantScheme{},
                                  ActKind::none, spec.name),
                      {});
  }
  writer.add_requirement("rotation");
  writer.finish({{"config", config_to_json(after.config)},
                 {"generation", generation_to_json({})},
                 {"provenance", {{"type", "f32"}}}});
  const Model model(path, {});
  EXPECT_EQ(model.config(), after.config);
  const auto ids = test::random_ids(20, after.config.vocab);
  const auto backend = make_cpu_backend({1, Isa::portable});
  RunLimits limits;
  limits.context = limits.batch_tokens = limits.output_tokens = 20;
  limits.key_type = limits.value_type = KvType::f32;
  Session session(model, *backend, resolve_limits(limits, model.config()));
  Batch batch;
  batch.add(0, ids.data(), 20, Batch::Want::all);
  std::vector<float> logits(static_cast<std::size_t>(20 * after.config.vocab));
  backend->download(session.transformer().forward(batch, session.state()), 20, logits);
  EXPECT_EQ(logits, test::engine_rows(test::PackedModel(after), *backend, ids, 20));
}

INSTANTIATE_TEST_SUITE_P(Families, RotationOf, ::testing::ValuesIn(test::random_models()),
                         [](const auto& item) { return item.param.name; });

class RotationOfTrained : public ::testing::TestWithParam<const char*> {};

TEST_P(RotationOfTrained, LeavesTheLogits) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam());
  const test::ModelTensors before = test::read_tensors(import_hf(folder));
  const auto ids = test::random_ids(12, before.config.vocab);
  const test::ModelTensors after = rotated_tensors(before, kSeed);
  EXPECT_LT(
      test::relative_difference(test::naive_logits(before, ids), test::engine_logits(after, ids)),
      test::kSameFunction);
}

INSTANTIATE_TEST_SUITE_P(Models, RotationOfTrained, testing::ValuesIn(test::kTrainedModels),
                         test::named_by_text);

// Q is orthogonal: with gains of 1, a weight keeps its sum of squares, and a column that is much
// larger than the others is spread over its block.
TEST(Rotation, SpreadsAnOutlierColumnAndKeepsTheEnergy) {
  test::ModelTensors before = test::make(test::random_models()[3]);  // GQA, without biases
  BlockTensors& block = before.blocks[0];
  std::ranges::fill(block.at("attention_norm").values, 1.0f);
  Matrix& q = block.at("q");
  for (std::size_t i = 5; i < q.values.size(); i += 96) q.values[i] *= 40;
  BlockTensors turned = block;
  rotate_block(turned, before.config, rotated(before.config, kSeed).rotation);
  for (const char* part : {"q", "k", "v", "o", "down"}) {
    EXPECT_NEAR(energy(turned.at(part)) / energy(block.at(part)), 1.0, 1e-6) << part;
  }
  EXPECT_LT(peak(turned.at("q")), peak(q) / 2);
}

TEST(Rotation, ConfigurationSaysWhatChanged) {
  const ModelConfig llama = test::make(test::random_models()[3]).config;
  ModelConfig turned = rotated(llama, 5);
  EXPECT_EQ(turned.rotation, (Rotation{5, 32}));  // 96 = 3 * 32
  turned.rotation = {};
  EXPECT_EQ(turned, llama);  // no new bias, because norms have no beta
  const ModelConfig gpt2 = rotated(test::make(test::random_models()[0]).config, 5);
  EXPECT_EQ(gpt2.block_norm(), NormKind::rms);
  EXPECT_EQ(gpt2.norm, NormKind::layer);  // the final norm
  EXPECT_THROW(rotated(gpt2, 6), Error);
  ModelConfig odd = llama;
  odd.width = 97;
  EXPECT_THROW(rotated(odd, 5), Error);
}

TEST(Rotation, ConfigurationIsReadBackOrRefused) {
  const ModelConfig turned = rotated(test::make(test::random_models()[0]).config, kSeed);
  const Json json = config_to_json(turned);
  EXPECT_EQ(config_from_json(json, "again"), turned);
  for (const char* bad :
       {R"({"seed": 1, "block": 0})", R"({"seed": 1, "block": 1})", R"({"seed": 1, "block": 24})",
        R"({"seed": 1, "block": 64})", R"({"seed": 1, "block": -32})",
        R"({"seed": -1, "block": 32})", R"({"seed": 1})", R"({"block": 32})", R"(7)", R"([1, 32])",
        R"({"seed": 1, "block": "32"})", R"({"seed": 1, "block": 3e300})"}) {
    Json broken = json;
    broken["rotation"] = parse_json(bad, "case");
    EXPECT_THROW(config_from_json(broken, "broken"), Error) << bad;
  }
}

// Compares with known words of the generator of Salmon et al.: a seed must always give the same
// signs, because files that are already rotated depend on them.
TEST(RotationSigns, AreTheTopBitsOfPhilox) {
  const auto signs = rotation_signs(kSeed, RotationSpace::residual, 6);
  const auto first = philox(kSeed, {0, 0, 0, 0}), second = philox(kSeed, {1, 0, 0, 0});
  ASSERT_EQ(signs.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    const std::uint32_t word = i < 4 ? first[i] : second[i - 4];
    EXPECT_EQ(signs[i], word >= 0x80000000u ? -1.0f : 1.0f);
  }
  EXPECT_NE(rotation_signs(1, RotationSpace::residual, 64),
            rotation_signs(1, RotationSpace::head_values, 64));
  EXPECT_NE(rotation_signs(1, RotationSpace::residual, 64),
            rotation_signs(2, RotationSpace::residual, 64));
}

TEST(HadamardBlock, IsTheLargestPowerOfTwo) {
  EXPECT_EQ(hadamard_block(160), 32);
  EXPECT_EQ(hadamard_block(192), 64);
  EXPECT_EQ(hadamard_block(432), 16);
  EXPECT_EQ(hadamard_block(4096), 4096);
  EXPECT_EQ(hadamard_block(97), 1);
}

}  // namespace
}  // namespace leq
