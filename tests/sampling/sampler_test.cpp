// Compares the sampler with a slow reference in double that sorts everything, checks the
// probabilities of its draws, and tests limits of its settings.
#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/random.h"

namespace leq {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Draws a token on the host from one row of logits.
std::int32_t draw(Sampler sampler, const std::vector<float>& logits,
                  const std::vector<Token>& context, const SamplePoint& point) {
  return HostSampler().draw(logits, sampler.request(context, point));
}

SamplingSettings plain(float temperature = 1.0f) {
  return {.temperature = temperature, .top_k = 0, .top_p = 1, .min_p = 0};
}

std::vector<float> random_logits(std::size_t count, std::uint64_t seed, float scale = 3.0f) {
  Random random(seed);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = scale * random.normal();
  return logits;
}

struct Drawn {
  Token token;
  double margin;  // relative margin of the closest decision
};

// A slow implementation of the definition, all in double with exp of the C library.
Drawn reference(const std::vector<float>& raw, const SamplingSettings& s,
                const std::vector<Token>& context, const std::vector<Token>& banned,
                const SamplePoint& point) {
  std::vector<double> logits(raw.begin(), raw.end());
  const std::size_t n =
      s.repeat_last_n < 0 ? context.size() : static_cast<std::size_t>(s.repeat_last_n);
  std::map<Token, int> counts;
  for (std::size_t i = context.size() - std::min(n, context.size()); i < context.size(); ++i) {
    ++counts[context[i]];
  }
  for (const auto& [id, count] : counts) {
    double& l = logits[static_cast<std::size_t>(id)];
    l = l > 0 ? l / double{s.repeat_penalty} : l * double{s.repeat_penalty};
    l -= count * double{s.frequency_penalty} + double{s.presence_penalty};
  }
  std::vector<Token> order;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    const auto id = static_cast<Token>(i);
    if (std::find(banned.begin(), banned.end(), id) == banned.end()) order.push_back(id);
  }
  const auto logit = [&](Token id) { return logits[static_cast<std::size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](Token a, Token b) { return logit(a) > logit(b); });
  double margin = 1;
  const auto decide = [&](double left, double right, double unit) {
    margin = std::min(margin, std::abs(left - right) / unit);
    return left >= right;
  };
  if (s.top_k > 0 && static_cast<std::size_t>(s.top_k) < order.size()) {
    const auto k = static_cast<std::size_t>(s.top_k);
    decide(logit(order[k - 1]), logit(order[k]), 1);
    order.resize(k);
  }
  const double top = logit(order[0]);
  double total = 0;
  for (const Token id : order) total += std::exp(logit(id) - top);
  if (s.top_p < 1) {
    double sum = 0;
    std::size_t kept = 0;
    while (kept < order.size()) {
      sum += std::exp(logit(order[kept++]) - top);
      if (decide(sum, double{s.top_p} * total, total)) break;
    }
    order.resize(kept);
  }
  std::size_t kept = 1;
  while (kept < order.size() && decide(std::exp(logit(order[kept]) - top), double{s.min_p}, 1))
    ++kept;
  order.resize(kept);
  total = 0;
  for (const Token id : order) total += std::exp((logit(id) - top) / double{s.temperature});
  const double r = (philox(s.seed, {point.index, point.reply, point.choice, 0})[0] >> 8) * 0x1p-24;
  double sum = 0;
  for (const Token id : order) {
    sum += std::exp((logit(id) - top) / double{s.temperature});
    if (decide(sum, r * total, total)) return {id, margin};
  }
  return {order.back(), margin};
}

SamplingSettings random_settings(Random& random) {
  SamplingSettings s;
  s.temperature = 0.2f + 2 * random.uniform();
  s.top_k = random.below(3) == 0 ? 0 : static_cast<int>(1 + random.below(200));
  s.top_p = random.below(3) == 0 ? 1.0f : random.uniform();
  s.min_p = random.below(3) == 0 ? 0.0f : 0.2f * random.uniform();
  if (random.below(2) == 0) {
    s.repeat_penalty = 0.8f + random.uniform();
    s.presence_penalty = random.uniform() - 0.3f;
    s.frequency_penalty = random.uniform() - 0.3f;
    s.repeat_last_n = static_cast<int>(random.below(100)) - 1;
  }
  s.seed = std::uint64_t{random.bits()} << 32 | random.bits();
  return s;
}

TEST(Sampler, DrawsWhatTheSlowReferenceDraws) {
  constexpr int kTrials = 2000;
  constexpr double kTooNear = 1e-5;  // f32 exp against double: two roundings
  Random random(42);
  int compared = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const std::size_t vocabulary = 1 + random.below(trial % 10 == 0 ? 5000 : 300);
    const auto logits = random_logits(vocabulary, random.bits());
    const SamplingSettings settings = random_settings(random);
    std::vector<Token> context(random.below(120));
    for (Token& id : context) {
      id = static_cast<Token>(random.below(static_cast<std::uint32_t>(vocabulary)));
    }
    std::vector<Token> banned;
    if (vocabulary > 2) banned = {0, static_cast<Token>(vocabulary / 2)};
    const SamplePoint point = {random.bits(), random.below(9), random.below(9)};
    const Drawn expected = reference(logits, settings, context, banned, point);
    if (expected.margin < kTooNear) continue;
    ++compared;
    Sampler sampler(settings, vocabulary, banned);
    ASSERT_EQ(draw(sampler, logits, context, point), expected.token) << "trial " << trial;
  }
  EXPECT_GT(compared, kTrials * 9 / 10);
}

TEST(Sampler, DrawsAsOftenAsTheProbabilitiesSay) {
  // Chi squared with 15 degrees of freedom exceeds 45 for one seed in 10,000; the seed is fixed.
  constexpr std::size_t kTokens = 16;
  constexpr int kDraws = 200000;
  constexpr double kTemperature = 1.5;
  const auto logits = random_logits(kTokens, 3, 1.0f);
  auto settings = plain(static_cast<float>(kTemperature));
  settings.seed = 12345;
  Sampler sampler(settings, kTokens, {});
  std::vector<int> seen(kTokens);
  for (std::uint32_t i = 0; i < kDraws; ++i) {
    ++seen[static_cast<std::size_t>(draw(sampler, logits, {}, {.index = i}))];
  }
  double total = 0;
  for (const float l : logits) total += std::exp(double{l} / kTemperature);
  double chi_squared = 0;
  for (std::size_t i = 0; i < kTokens; ++i) {
    const double expected = kDraws * std::exp(double{logits[i]} / kTemperature) / total;
    chi_squared += (seen[i] - expected) * (seen[i] - expected) / expected;
  }
  EXPECT_LT(chi_squared, 45);
}

TEST(Sampler, TheRandomNumberIsTheFirstWordOfPhilox) {
  // There are 256 equal logits; the token is the first byte of Philox's published output 6627e8d5.
  const std::vector<float> logits(256, 1.0f);
  Sampler sampler(plain(), 256, {});
  EXPECT_EQ(draw(sampler, logits, {}, {}), 0x66);
}

TEST(Sampler, IndexReplyChoiceAndSeedAllChangeTheDraw) {
  const std::vector<float> logits(4096, 0.0f);
  auto settings = plain();
  std::set<Token> seen;
  for (const SamplePoint point :
       {SamplePoint{0, 0, 0}, SamplePoint{1, 0, 0}, SamplePoint{0, 1, 0}, SamplePoint{0, 0, 1}}) {
    seen.insert(draw(Sampler(settings, 4096, {}), logits, {}, point));
  }
  settings.seed = 1ull << 32;  // the high half of the seed matters, too
  seen.insert(draw(Sampler(settings, 4096, {}), logits, {}, {}));
  EXPECT_EQ(seen.size(), 5u);
}

TEST(Sampler, TemperatureZeroTakesTheLowestIdOfTheLargestLogits) {
  const std::vector<float> logits = {1, 5, -2, 5, 5, 0};
  Sampler sampler(plain(0), logits.size(), {});
  EXPECT_EQ(draw(sampler, logits, {}, {}), 1);
  EXPECT_EQ(draw(Sampler(plain(0), logits.size(), std::vector<Token>{1}), logits, {}, {}), 3);
}

TEST(Sampler, TemperatureZeroIgnoresAllButThePenaltiesThatWereAskedFor) {
  const std::vector<float> logits = {1, 5, 4};
  const std::vector<Token> context = {1, 1};
  auto settings = plain(0);
  settings.repeat_penalty = 2;
  settings.top_p = 0;
  EXPECT_EQ(draw(Sampler(settings, 3, {}), logits, context, {}), 1);
  settings.penalties_when_greedy = true;
  EXPECT_EQ(draw(Sampler(settings, 3, {}), logits, context, {}), 2);
}

TEST(Sampler, TopKOneAndTopPZeroTakeTheLowestIdOfTheLargestLogits) {
  const std::vector<float> logits = {-0.0f, 0.0f, -1, 0.0f};  // both zeros are the same logit
  auto one = plain();
  one.top_k = 1;
  auto narrow = plain();
  narrow.top_p = 0;
  for (std::uint32_t i = 0; i < 50; ++i) {
    EXPECT_EQ(draw(Sampler(one, 4, {}), logits, {}, {.index = i}), 0);
    EXPECT_EQ(draw(Sampler(narrow, 4, {}), logits, {}, {.index = i}), 0);
  }
}

// Returns all tokens that are ever drawn.
std::set<Token> reachable(const SamplingSettings& settings, const std::vector<float>& logits,
                          const std::vector<Token>& banned = {}) {
  Sampler sampler(settings, logits.size(), banned);
  std::set<Token> seen;
  for (std::uint32_t i = 0; i < 4000; ++i) seen.insert(draw(sampler, logits, {}, {.index = i}));
  return seen;
}

TEST(Sampler, TopKKeepsTheLowestIdsOfEqualLogits) {
  auto settings = plain();
  settings.top_k = 3;
  EXPECT_EQ(reachable(settings, std::vector<float>(2000, 1.0f)), (std::set<Token>{0, 1, 2}));
  EXPECT_EQ(reachable(settings, std::vector<float>(4, 1.0f)), (std::set<Token>{0, 1, 2}));
}

TEST(Sampler, TopPCountsTheSharesOfTopKsSurvivorsOnly) {
  // The probabilities are 0.4, 0.3, 0.2, 0.1. After top-k 2 they are 4/7 and 3/7, so that top-p 0.5
  // keeps one token; for the whole distribution it would keep two.
  std::vector<float> logits;
  for (const double p : {0.4, 0.3, 0.2, 0.1}) logits.push_back(static_cast<float>(std::log(p)));
  auto settings = plain();
  settings.top_p = 0.5f;
  EXPECT_EQ(reachable(settings, logits), (std::set<Token>{0, 1}));
  settings.top_k = 2;
  EXPECT_EQ(reachable(settings, logits), (std::set<Token>{0}));
}

TEST(Sampler, TopPAndMinPLookAtProbabilitiesBeforeTheTemperature) {
  std::vector<float> logits;
  for (const double p : {0.6, 0.3, 0.1}) logits.push_back(static_cast<float>(std::log(p)));
  for (const float temperature : {0.5f, 50.0f}) {
    auto settings = plain(temperature);
    settings.min_p = 0.4f;  // keeps 0.3 / 0.6, drops 0.1 / 0.6
    EXPECT_EQ(reachable(settings, logits), (std::set<Token>{0, 1})) << temperature;
    settings.min_p = 0;
    settings.top_p = 0.7f;
    EXPECT_EQ(reachable(settings, logits), (std::set<Token>{0, 1})) << temperature;
  }
}

TEST(Sampler, PenaltiesLookAtTheLastTokensOnly) {
  const std::vector<float> logits = {2, 2, 2};
  auto settings = plain(0);
  settings.penalties_when_greedy = true;
  settings.presence_penalty = 1;
  settings.repeat_last_n = 2;
  const std::vector<Token> context = {0, 1, 2, 1, 2};
  EXPECT_EQ(draw(Sampler(settings, 3, {}), logits, context, {}), 0);
  settings.repeat_last_n = 3;  // 2, 1, 2: still without token 0
  EXPECT_EQ(draw(Sampler(settings, 3, {}), logits, context, {}), 0);
  settings.repeat_last_n = -1;
  settings.presence_penalty = 0;
  settings.frequency_penalty = 1;  // once, twice, twice
  EXPECT_EQ(draw(Sampler(settings, 3, {}), std::vector<float>{1.5f, 2, 2}, context, {}), 0);
}

// Negative ids are no tokens of the vocabulary: placeholder_id() for one, until it is drawn.
TEST(Sampler, PenaltiesPassOverTokensOutsideTheVocabulary) {
  SamplingSettings settings;
  settings.temperature = 0;
  settings.penalties_when_greedy = true;
  settings.repeat_penalty = 2;
  Sampler sampler(settings, 3, {});
  const std::vector<float> logits = {1, 1.5f, 0};
  for (const std::vector<Token>& context :
       {std::vector<Token>{1}, {-5, 1}, {1, 3}, {-1, 7, 1, 3}}) {
    EXPECT_EQ(HostSampler().draw(logits, sampler.request(context, {})), 0) << context.size();
  }
}

TEST(Sampler, BannedAndImpossibleTokensAreNeverDrawn) {
  std::vector<float> logits(100, 1.0f);
  logits[7] = -kInfinity;
  const std::vector<Token> banned = {0, 50, 99};
  for (const int k : {0, 60, 98}) {
    auto settings = plain(5);
    settings.top_k = k;
    const auto seen = reachable(settings, logits, banned);
    for (const Token id : {0, 7, 50, 99}) EXPECT_FALSE(seen.contains(id)) << id << " k " << k;
    EXPECT_EQ(seen.size(), k == 60 ? 60u : 96u);
  }
}

TEST(Sampler, NamesLogitsThatAreNoNumbersAndVocabulariesThatAreAllBanned) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
    for (const float temperature : {0.0f, 1.0f}) {
      // The first of two bad logits is named, even if its token is banned.
      for (const std::vector<Token>& banned : {std::vector<Token>{}, {1}}) {
        const Sampler sampler(plain(temperature), 4, banned);
        EXPECT_EQ(draw(sampler, {0, bad, 1, bad}, {}, {}), bad_logit_of(1));
      }
    }
  }
  const std::vector<Token> all = {2, 0, 1, 0};
  for (const float temperature : {0.0f, 1.0f}) {
    EXPECT_EQ(draw(Sampler(plain(temperature), 3, all), {0, 1, 2}, {}, {}), kAllBanned);
    const std::vector<float> impossible(3, -kInfinity);
    EXPECT_EQ(draw(Sampler(plain(temperature), 3, {}), impossible, {}, {}), kAllBanned);
  }
  EXPECT_THROW(Sampler(plain(), 3, std::vector<Token>{3}), Error);
}

TEST(Sampler, BannedTokensStayBannedWhateverTheirPenalty) {
  auto settings = plain(0);
  settings.penalties_when_greedy = true;
  settings.presence_penalty = -100;  // a reward
  const std::vector<Token> banned = {1};
  EXPECT_EQ(draw(Sampler(settings, 3, banned), {1, 2, 3}, {1, 0}, {}), 0);
}

// Penalties beyond the range of floats give the largest float or an impossible token.
TEST(Sampler, ExtremePenaltiesGiveNumbers) {
  auto settings = plain();
  settings.repeat_penalty = 1e-30f;
  EXPECT_EQ(draw(Sampler(settings, 3, {}), {1, 3e38f, 2}, {0, 1, 2}, {}), 1);
  settings.repeat_penalty = 10;
  settings.presence_penalty = -3e38f;
  settings.frequency_penalty = -3e38f;
  for (std::uint32_t i = 0; i < 200; ++i) {
    EXPECT_NE(draw(Sampler(settings, 3, {}), {-3e38f, 1, 2}, {0, 0}, {.index = i}), 0);
  }
}

TEST(Sampler, RefusesSettingsOutOfRangeByName) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto refused = [](auto change, const std::string& name) {
    SamplingSettings settings;
    change(settings);
    try {
      check_settings(settings);
    } catch (const Error& error) {
      return error.kind() == ErrorKind::bad_setting &&
             std::string(error.what()).starts_with(name + " is ");
    }
    return false;
  };
  using S = SamplingSettings;
  EXPECT_TRUE(refused([](S& s) { s.temperature = -0.1f; }, "temperature"));
  EXPECT_TRUE(refused([&](S& s) { s.temperature = nan; }, "temperature"));
  EXPECT_TRUE(refused([](S& s) { s.top_k = -2; }, "top_k"));
  EXPECT_TRUE(refused([](S& s) { s.top_p = 1.5f; }, "top_p"));
  EXPECT_TRUE(refused([&](S& s) { s.min_p = nan; }, "min_p"));
  EXPECT_TRUE(refused([](S& s) { s.repeat_penalty = 0; }, "repeat_penalty"));
  EXPECT_TRUE(refused([](S& s) { s.repeat_last_n = -2; }, "repeat_last_n"));
  EXPECT_TRUE(refused([](S& s) { s.presence_penalty = kInfinity; }, "presence_penalty"));
  EXPECT_TRUE(refused([&](S& s) { s.frequency_penalty = nan; }, "frequency_penalty"));
  EXPECT_NO_THROW(check_settings({}));
}

TEST(Sampler, AnExtremeTemperatureNeitherOverflowsNorDivides) {
  const std::vector<float> logits = {0, 3e38f, -3e38f, 1};
  for (const float temperature : {1e-40f, 1e-30f, 1.0f}) {
    EXPECT_EQ(reachable(plain(temperature), logits), (std::set<Token>{1})) << temperature;
  }
  EXPECT_EQ(reachable(plain(3e38f), {0, 1, 2}), (std::set<Token>{0, 1, 2}));
}

// Blocks of 64 logits are skipped by their largest one: the best k are found wherever they lie,
// with the last, shorter block.
TEST(Sampler, TheBestAreFoundInEveryBlock) {
  for (const std::size_t vocabulary : {1024u, 1000u, 961u}) {
    std::vector<float> logits(vocabulary, -5.0f);
    const std::set<Token> best = {0, 63, 64, 500, 511, static_cast<Token>(vocabulary - 1)};
    for (const Token id : best) logits[static_cast<std::size_t>(id)] = 2;
    auto settings = plain();
    settings.top_k = static_cast<int>(best.size());
    EXPECT_EQ(reachable(settings, logits), best) << vocabulary;
    // Of a block that is banned as a whole the next best counts.
    std::vector<Token> banned(64);
    std::iota(banned.begin(), banned.end(), 0);
    settings.top_k = 4;
    EXPECT_EQ(reachable(settings, logits, banned),
              (std::set<Token>{64, 500, 511, static_cast<Token>(vocabulary - 1)}));
  }
}

}  // namespace
}  // namespace leq
