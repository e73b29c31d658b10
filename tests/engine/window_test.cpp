// Layers with a sliding window keep only the pages of their windows, and results are the same as
// with a cache that keeps all pages: for forks, reused texts, drafts taken back and saved
// sequences.
#include <gtest/gtest.h>

#include <string>

#include "case_names.h"
#include "model/session.h"
#include "ranks_fixture.h"
#include "runtime/make_backend.h"
#include "window_run.h"

namespace leq {
namespace {

using test::WindowRun;

struct Case {
  const char* family;
  bool all_windowed;
  KvType type;
  int ranks = 1;
};

// gemma-4-shared: heads of two sizes, and caches that later layers share.
const Case kCases[] = {
    {"gemma-3", false, KvType::f16},          {"gemma-3", false, KvType::int8},
    {"gemma-3", false, KvType::simq4},        {"gemma-3", true, KvType::f16},
    {"gemma-3", true, KvType::simq2},         {"gemma-4-shared", false, KvType::int8},
    {"gemma-4-shared", false, KvType::simq4}, {"gpt-oss", false, KvType::f16},
    {"gpt-oss", false, KvType::simq2},        {"gemma-3", false, KvType::int8, 2},
    {"gemma-3", false, KvType::simq4, 2},     {"gemma-3", true, KvType::simq4, 2},
};

class Windows : public testing::TestWithParam<Case> {};

TEST_P(Windows, PagesBehindThemAreGivenUpAndNoBitChanges) {
  const auto& [family, all_windowed, type, ranks] = GetParam();
  const test::TemporaryFolder scratch;
  const Model model(
      test::quantized(test::with_long_context(family, all_windowed, scratch), "int8-g32"), {});
  const RunLimits limits = WindowRun::limits_of(model, type);
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  test::RankedModel ranked(model, ranks, 1, limits);
  KvCache& cache = ranked.session.cache();
  ASSERT_LT(cache.frame_count(), cache.page_count() * 3 / 4);
  WindowRun run(model, ranked.session, *backend);
  run.run(150, 1);
  EXPECT_GT(run.longest, 1200);
  EXPECT_GT(run.reused, 4);
  EXPECT_GT(run.reused_behind, 0);
  EXPECT_GT(run.shortened, 0);
}

INSTANTIATE_TEST_SUITE_P(Cases, Windows, testing::ValuesIn(kCases), [](const auto& item) {
  const Case& c = item.param;
  return test::test_name(std::string(c.family) + (c.all_windowed ? "-windows-" : "-") +
                         std::string(kv_type_name(c.type)) + "-" + std::to_string(c.ranks));
});

}  // namespace
}  // namespace leq
