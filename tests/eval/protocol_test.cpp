// Compares windows and scored tokens of each protocol with naive definitions and golden counts.
#include "eval/perplexity.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "errors.h"
#include "shared_data.h"

namespace leq {
namespace {

constexpr const char* kModels[] = {
    "storyteller",  "storyteller-outliers", "gpt2-tiny",        "gpt2-tiny-outliers",
    "mistral-tiny", "qwen2-tiny",           "qwen2-tiny-kbias", "qwen3-tiny"};

std::int64_t scored(const std::vector<Window>& windows) {
  std::int64_t sum = 0;
  for (const Window& window : windows) sum += window.scored();
  return sum;
}

std::string error_of(const ProtocolRequest& request, std::int64_t context) {
  return test::error_of([&] { resolve_protocol(request, context); });
}

TEST(Protocol, DefaultsFollowTheModelsContext) {
  EXPECT_EQ(resolve_protocol({}, 1024).window, 1024);
  EXPECT_EQ(resolve_protocol({}, 131072).window, 2048);
  EXPECT_EQ(resolve_protocol({.protocol = "hf-stride"}, 512).stride, 256);
  EXPECT_EQ(resolve_protocol({.protocol = "hf-stride"}, 1024).stride, 512);
  EXPECT_EQ(resolve_protocol({.protocol = "hf-stride"}, 4096).stride, 512);
  EXPECT_EQ(resolve_protocol({.protocol = "llamacpp-512"}, 4096).window, 512);
  EXPECT_EQ(resolve_protocol({}, 512).join, Join::hf);
  EXPECT_EQ(resolve_protocol({.protocol = "llamacpp-512"}, 512).join, Join::none);
  EXPECT_EQ(resolve_protocol({.protocol = "hf", .join = "none"}, 512).join, Join::none);
}

TEST(Protocol, ContradictionsAreRefusedWithBothSides) {
  EXPECT_EQ(error_of({.window = 2048}, 1024),
            "window 2048: expected 2 to the model's context of 1024");
  EXPECT_EQ(error_of({.stride = 512}, 1024),
            "stride 512: protocol hf has none; use protocol hf-stride");
  EXPECT_EQ(error_of({.protocol = "hf-stride", .window = 100, .stride = 200}, 1024),
            "stride 200: expected 1 to the window of 100");
  EXPECT_EQ(error_of({.protocol = "llamacpp-512", .window = 1024}, 1024),
            "window 1024: protocol llamacpp-512 has windows of 512; leave window out");
  EXPECT_EQ(error_of({.protocol = "llamacpp-512", .join = "hf"}, 1024),
            "join hf: protocol llamacpp-512 takes the file as it is; leave join out");
  EXPECT_EQ(error_of({.protocol = "llamacpp-512"}, 256),
            "protocol llamacpp-512: needs windows of 512, the model has a context of 256");
  EXPECT_EQ(error_of({.protocol = "hf2"}, 256),
            "protocol: expected hf | hf-stride | llamacpp-512, found 'hf2'");
}

TEST(Windows, ShortTextsAreRefusedWithTheirLength) {
  EXPECT_EQ(test::error_of([&] { plan_windows(resolve_protocol({}, 512), 511); }),
            "the text has 511 tokens, one window has 512; take a longer text or a smaller "
            "window");
  EXPECT_EQ(plan_windows(resolve_protocol({}, 512), 512).size(), 1u);
}

TEST(Windows, SideBySideDropTheTail) {
  const auto windows = plan_windows(resolve_protocol({}, 10), 39);
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[2].first, 20);
  EXPECT_EQ(windows[2].count, 10);
  EXPECT_EQ(windows[2].scored_from, 21);
  EXPECT_EQ(plan_windows(resolve_protocol({.chunks = 2}, 10), 39).size(), 2u);
}

TEST(Windows, OverlappingOnesScoreEveryTokenOnceButTheFirst) {
  for (const std::int64_t tokens : {10, 11, 37, 40, 41}) {
    for (const std::int64_t stride : {1, 3, 9, 10}) {
      const auto windows =
          plan_windows(resolve_protocol({.protocol = "hf-stride", .stride = stride}, 10), tokens);
      std::multiset<std::int64_t> found;
      for (const Window& window : windows) {
        EXPECT_EQ(window.first % stride, 0);
        EXPECT_GT(window.scored_from, window.first);
        EXPECT_LE(window.first + window.count, tokens);
        for (auto t = window.scored_from; t < window.first + window.count; ++t) found.insert(t);
      }
      // If windows do not overlap, the first token of each window has no context and is not scored.
      std::multiset<std::int64_t> expected;
      for (std::int64_t t = 1; t < tokens; ++t) {
        if (stride < 10 || t % 10 != 0) expected.insert(t);
      }
      EXPECT_EQ(found, expected) << tokens << " tokens, stride " << stride;
    }
  }
}

TEST(Windows, LlamacppScoresTokens257To511OfEachChunk) {
  const auto windows = plan_windows(resolve_protocol({.protocol = "llamacpp-512"}, 2048), 1536);
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[1].first, 512);
  EXPECT_EQ(windows[1].scored_from, 512 + 257);
  EXPECT_EQ(windows[1].scored(), 255);
}

// Compares with the counts of every golden perplexity, computed from the number of tokens.
TEST(Windows, CountsEqualTheGoldenOnes) {
  int checked = 0;
  for (const std::string model : kModels) {
    const auto path = test::shared_path("models/" + model + "/golden.json");
    if (!path) continue;
    const Json golden = parse_json(read_file(*path, 1u << 24), model);
    for (const Json& entry : golden.at("perplexity")) {
      ProtocolRequest request;
      const auto protocol = entry.at("protocol").get<std::string>();
      request.protocol = protocol.substr(0, protocol.find(','));
      if (protocol.ends_with("join none")) request.join = "none";
      if (request.protocol == "hf-stride") request.chunks = entry.at("windows").get<int>();
      const auto window = entry.at("window").get<std::int64_t>();
      // Golden runs of the hf protocols used the model's context, the default, as their window.
      const auto settings = resolve_protocol(request, std::max<std::int64_t>(window, 512));
      const auto windows = plan_windows(settings, entry.at("tokens").get<std::int64_t>());
      EXPECT_EQ(settings.window, window) << model << ' ' << protocol;
      EXPECT_EQ(settings.stride, entry.value("stride", window)) << model << ' ' << protocol;
      EXPECT_EQ(std::ssize(windows), entry.at("windows").get<std::int64_t>()) << model << protocol;
      EXPECT_EQ(scored(windows), entry.at("scored").get<std::int64_t>()) << model << protocol;
      ++checked;
    }
  }
  if (checked == 0) GTEST_SKIP() << "needs ../shared/models (or LEQ_SHARED)";
  EXPECT_GE(checked, 4);
}

}  // namespace
}  // namespace leq
