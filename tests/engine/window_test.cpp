// Layers with a sliding window keep only the pages of their windows, and results are the same as
// with a cache that keeps all pages: for forks, reused texts, drafts taken back and saved
// sequences.
#include <gtest/gtest.h>

#include <string>

#include "case_names.h"
#include "engine/engine.h"
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
      test::quantized(test::with_long_context(family, all_windowed, scratch), "int8-g128"), {});
  const RunLimits limits = WindowRun::limits_of(model, type);
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  test::RankedModel ranked(model, ranks, 1, limits);
  KvCache& cache = ranked.session.cache();
  ASSERT_LT(cache.frame_count(), cache.page_count() * 3 / 4);
  WindowRun run(model, ranked.session, *backend);
  run.run(1000, 300, 1);
  EXPECT_GT(run.reused, 4);
  EXPECT_GT(run.reused_behind, 0);
  EXPECT_GT(run.shortened, 0);
}

// The next turn of a chat leaves out the reasoning of the last reply, so that it branches where the
// reply began, many windows before its end.
TEST(WindowsOfChats, APromptIsReusedAfterALongReply) {
  const test::TemporaryFolder scratch;
  const Model model(
      test::quantized(test::with_long_context("gpt-oss", false, scratch), "int8-g128"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  RunLimits limits = {.context = 2048, .sequences = 1, .batch_tokens = 64};
  Session session(model, *backend, resolve_limits(limits, model.config()));
  ASSERT_LT(session.cache().frame_count(), session.cache().page_count());
  Engine engine(session, model.tokenizer(), {.speculate = false});
  const auto reply_to = [&](const std::vector<Token>& prompt, std::int64_t tokens) {
    EngineReply reply;
    EngineRequest request;
    request.prompt = prompt;
    request.sampling.temperature = 1;
    request.stop.max_tokens = tokens;
    request.on_end = [&](const EngineReply& ended) { reply = ended; };
    engine.submit(std::move(request));
    while (engine.step()) {
    }
    return reply;
  };
  std::vector<Token> prompt;
  for (int i = 0; i < 150; ++i) prompt.push_back(static_cast<Token>(i * i % 90));
  EXPECT_EQ(reply_to(prompt, 1500).tokens.size(), 1500u);
  prompt.push_back(1);
  EXPECT_EQ(reply_to(prompt, 5).cached_tokens, 150);
}

INSTANTIATE_TEST_SUITE_P(Cases, Windows, testing::ValuesIn(kCases), [](const auto& item) {
  const Case& c = item.param;
  return test::test_name(std::string(c.family) + (c.all_windowed ? "-windows-" : "-") +
                         std::string(kv_type_name(c.type)) + "-" + std::to_string(c.ranks));
});

}  // namespace
}  // namespace leq
