// Compares seeded checkpoints with transformers: fed whole, in chunks, one by one, and on ranks.
#include "reference/family_golden.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "base/cpu_features.h"
#include "ranks_fixture.h"

namespace leq {
namespace {

// The tolerance for f32 sums in another order, relative to the largest logit.
constexpr double kTolerance = 1e-4;
// Of the perplexity of the text's next tokens, relative.
constexpr double kPerplexityTolerance = 1e-5;

class FamilyGoldensOf : public testing::TestWithParam<const char*> {};

TEST_P(FamilyGoldensOf, LogitsAreThoseOfTransformers) {
  const test::FamilyGolden golden(GetParam());
  const test::TemporaryFolder scratch;
  const Model model = test::f32_model(test::family_folder(GetParam()), scratch);
  const auto backend = make_backend({.device = "cpu", .threads = 2});
  const auto whole = golden.run(model, *backend, 512);
  EXPECT_LT(golden.difference(whole), kTolerance);
  EXPECT_LT(golden.perplexity_difference(whole), kPerplexityTolerance);
  if (golden.length() > 512) return;
  EXPECT_EQ(whole, golden.run(model, *backend, 7));
  EXPECT_EQ(whole, golden.run(model, *backend, 1));
  for (const Isa isa : supported_isas()) {
    EXPECT_EQ(whole, golden.run(model, *make_cpu_backend({1, isa}), 20)) << isa_name(isa);
  }
}

// Layers that normalize sublayer outputs gather the stream before and after the sublayer.
// Ranks have the sinks of their heads and the biases of their rows.
TEST(FamilyGoldens, RanksGiveTheLogitsOfOne) {
  for (const char* name : {"muse-glimmer", "gemma-3", "gemma-4", "gemma-4-moe", "gemma-4-shared",
                           "gpt-oss", "granite", "phi-3", "lfm2", "lfm2-moe"}) {
    SCOPED_TRACE(name);
    const test::FamilyGolden golden(name);
    const test::TemporaryFolder scratch;
    const Model model = test::f32_model(test::family_folder(name), scratch);
    const RunLimits limits = golden.limits(model, 20);
    test::RankedModel alone(model, 1, 1, limits);
    const auto want = golden.run(alone.session, 20);
    for (const int ranks : {2, 3, 4}) {
      test::RankedModel ranked(model, ranks, 1, limits);
      EXPECT_EQ(want, golden.run(ranked.session, 20)) << ranks << " ranks";
    }
  }
}

// A text of several pages in models whose layers differ in heads, or share keys and values: in
// chunks, forked, and saved and loaded it continues with the same bits, in every type of cache.
TEST(FamilyGoldens, SequencesOfSeveralKindsOfHeadsGoOn) {
  constexpr std::int64_t kFirst = 200, kMore = 50;
  std::vector<Token> ids;
  for (std::int32_t i = 0; i < kFirst + kMore; ++i) ids.push_back((i * i * 5 + i) % 94);
  const auto backend = make_backend({.device = "cpu", .threads = 2});
  const auto feed = [&](Session& session, std::int32_t sequence, std::int64_t from,
                        std::int64_t count) {
    Batch batch;
    batch.add(sequence, ids.data() + from, count, Batch::Want::all);
    std::vector<float> logits(static_cast<std::size_t>(count * 96));
    backend->download(session.transformer().forward(batch, session.state()), count, logits);
    return logits;
  };
  for (const char* name : {"gemma-4", "gemma-4-moe", "gemma-4-shared"}) {
    const test::TemporaryFolder scratch;
    const Model model = test::f32_model(test::family_folder(name), scratch);
    for (const KvType type : {KvType::f32, KvType::f16, KvType::int8, KvType::simq4}) {
      SCOPED_TRACE(std::string(name) + " " + std::string(kv_type_name(type)));
      RunLimits limits;
      limits.context = 512;
      limits.sequences = 2;
      limits.batch_tokens = limits.output_tokens = kFirst;
      limits.key_type = limits.value_type = type;
      limits = resolve_limits(limits, model.config());
      Session one(model, *backend, limits), two(model, *backend, limits);
      feed(one, 0, 0, kFirst);
      const auto saved = one.cache().save(0);
      one.cache().fork(0, 1);
      const auto want = feed(one, 0, kFirst, kMore);
      EXPECT_EQ(feed(one, 1, kFirst, kMore), want);
      two.cache().load(1, saved, "test");
      EXPECT_EQ(feed(two, 1, kFirst, kMore), want);
      std::vector<float> single;
      for (std::int64_t i = 0; i < kFirst; i += 40) feed(two, 0, i, 40);
      for (std::int64_t i = 0; i < kMore; ++i) {
        const auto row = feed(two, 0, kFirst + i, 1);
        single.insert(single.end(), row.begin(), row.end());
      }
      EXPECT_EQ(single, want);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyGoldensOf,
                         testing::Values("muse-glimmer", "ministral-3", "qwen3.5-moe", "qwen3-next",
                                         "mixtral", "gemma-3", "gemma-4", "gemma-4-moe",
                                         "gemma-4-shared", "smollm3", "gpt-oss", "granite",
                                         "granite-4", "phi-3", "phi-3-short", "lfm2", "lfm2-moe"),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::erase_if(text, [](char c) { return c == '-' || c == '.'; });
                           return text;
                         });

}  // namespace
}  // namespace leq
