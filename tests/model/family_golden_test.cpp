// Compares seeded checkpoints with transformers: fed whole, in chunks, one by one, and on ranks.
#include "reference/family_golden.h"

#include <gtest/gtest.h>

#include "ranks_fixture.h"

namespace leq {
namespace {

// The tolerance for f32 sums in another order, relative to the largest logit.
constexpr double kTolerance = 1e-4;

class FamilyGoldensOf : public testing::TestWithParam<const char*> {};

TEST_P(FamilyGoldensOf, LogitsAreThoseOfTransformers) {
  const test::FamilyGolden golden(GetParam());
  const test::TemporaryFolder scratch;
  const Model model = test::f32_model(test::family_folder(GetParam()), scratch);
  const auto backend = make_backend({.device = "cpu", .threads = 2});
  const auto whole = golden.run(model, *backend, 512);
  EXPECT_LT(golden.difference(whole), kTolerance);
  if (golden.length() > 512) return;
  EXPECT_EQ(whole, golden.run(model, *backend, 7));
  EXPECT_EQ(whole, golden.run(model, *backend, 1));
}

// Layers that normalize sublayer outputs gather the stream before and after the sublayer.
// Ranks have the sinks of their heads and the biases of their rows.
TEST(FamilyGoldens, RanksGiveTheLogitsOfOne) {
  for (const char* name :
       {"muse-glimmer", "gemma-3", "gpt-oss", "granite", "phi-3", "lfm2", "lfm2-moe"}) {
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

INSTANTIATE_TEST_SUITE_P(Families, FamilyGoldensOf,
                         testing::Values("muse-glimmer", "ministral-3", "qwen3.5-moe", "qwen3-next",
                                         "mixtral", "gemma-3", "smollm3", "gpt-oss", "granite",
                                         "granite-4", "phi-3", "phi-3-short", "lfm2", "lfm2-moe"),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::erase_if(text, [](char c) { return c == '-' || c == '.'; });
                           return text;
                         });

}  // namespace
}  // namespace leq
