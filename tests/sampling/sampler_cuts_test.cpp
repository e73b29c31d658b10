// Typical, top-n-sigma, XTC, Mirostat and biases compared with slow references in double, written
// from the definitions, and with hand-computed probabilities.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "errors.h"
#include "sampling/sampler.h"

namespace leq {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingSettings plain() { return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0}; }

std::int32_t draw(Sampler& sampler, const std::vector<float>& logits, const SamplePoint& point) {
  return HostSampler().draw(logits, sampler.request({}, point));
}
std::int32_t draw(const SamplingSettings& settings, const std::vector<float>& logits,
                  const SamplePoint& point) {
  Sampler sampler(settings, logits.size(), {});
  return draw(sampler, logits, point);
}

std::set<Token> reachable(const SamplingSettings& settings, const std::vector<float>& logits) {
  std::set<Token> seen;
  for (std::uint32_t i = 0; i < 2000; ++i) seen.insert(draw(settings, logits, {.index = i}));
  return seen;
}

std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

// Applies cuts to a row in double: has the remaining tokens, best first, and the margin of the
// closest decision.
class SlowRow {
 public:
  SlowRow(const std::vector<float>& logits, const std::vector<LogitBias>& biases)
      : logits_(logits.begin(), logits.end()) {
    for (const LogitBias& b : biases) logits_[static_cast<std::size_t>(b.id)] += double{b.bias};
    for (std::size_t i = 0; i < logits_.size(); ++i) {
      if (std::isfinite(logits_[i])) order_.push_back(static_cast<Token>(i));
    }
    std::ranges::stable_sort(order_, [&](Token a, Token b) { return logit(a) > logit(b); });
  }

  void top_n_sigma(double n) {
    if (n <= 0) return;
    double mean = 0, square = 0;
    for (const Token id : order_) mean += logit(id) / static_cast<double>(order_.size());
    for (const Token id : order_) square += (logit(id) - mean) * (logit(id) - mean);
    const double least = logit(order_[0]) - n * std::sqrt(square / static_cast<double>(size()));
    keep_if([&](Token id) { return decide(logit(id), least, 1); });
  }
  void top_k(int k) {
    if (k > 0 && static_cast<std::size_t>(k) < size()) order_.resize(static_cast<std::size_t>(k));
  }
  void typical(double share) {
    if (share >= 1) return;
    const std::vector<double> p = probabilities(1);
    double entropy = 0;
    for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
    std::vector<std::size_t> by(size());
    std::iota(by.begin(), by.end(), std::size_t{0});
    const auto score = [&](std::size_t i) { return std::abs(-std::log(p[i]) - entropy); };
    std::ranges::stable_sort(by, [&](auto a, auto b) { return score(a) < score(b); });
    double sum = 0;
    std::size_t kept = 0;
    while (kept < by.size()) {
      sum += p[by[kept++]];
      if (decide(sum, share, 1)) break;
    }
    if (kept < by.size()) decide(score(by[kept - 1]), score(by[kept]), 1);
    std::set<Token> left;
    for (std::size_t i = 0; i < kept; ++i) left.insert(order_[by[i]]);
    keep_if([&](Token id) { return left.contains(id); });
  }
  void xtc(double probability, double threshold, double coin) {
    if (probability <= 0 || !decide(probability - 1e-12, coin, 1) || threshold > 0.5) return;
    const std::vector<double> p = probabilities(1);
    std::size_t above = 0;
    while (above < p.size() && decide(p[above], threshold, 1)) ++above;
    if (above >= 2) order_.erase(order_.begin(), order_.begin() + static_cast<long>(above) - 1);
  }
  void mirostat(double mu, double temperature) {
    const std::vector<double> p = probabilities(temperature);
    std::size_t kept = 1;
    while (kept < p.size() && decide(mu, -std::log2(p[kept]), 1)) ++kept;
    order_.resize(kept);
  }
  // Returns the drawn token, and its surprise in bits.
  std::pair<Token, double> draw(double temperature, double r) {
    const std::vector<double> p = probabilities(temperature);
    double sum = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      sum += p[i];
      if (decide(sum, r, 1)) return {order_[i], -std::log2(p[i])};
    }
    return {order_.back(), -std::log2(p.back())};
  }

  std::size_t size() const { return order_.size(); }
  double margin() const { return margin_; }

 private:
  double logit(Token id) const { return logits_[static_cast<std::size_t>(id)]; }
  std::vector<double> probabilities(double temperature) const {
    std::vector<double> p;
    for (const Token id : order_) {
      p.push_back(std::exp((logit(id) - logit(order_[0])) / temperature));
    }
    const double total = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& x : p) x /= total;
    return p;
  }
  bool decide(double left, double right, double unit) {
    margin_ = std::min(margin_, std::abs(left - right) / unit);
    return left >= right;
  }
  template <class Keep>
  void keep_if(Keep keep) {
    std::erase_if(order_, [&](Token id) { return !keep(id); });
  }

  std::vector<double> logits_;
  std::vector<Token> order_;
  double margin_ = 1;
};

double unit_number(std::uint32_t word) { return (word >> 8) * 0x1p-24; }

std::vector<float> random_logits(Random& random, std::size_t count, float scale) {
  std::vector<float> logits(count);
  for (float& logit : logits) logit = scale * random.normal();
  return logits;
}

std::vector<LogitBias> random_biases(Random& random, std::size_t vocabulary) {
  std::vector<LogitBias> biases;
  for (std::uint32_t i = random.below(4); i > 0; --i) {
    const auto id = static_cast<Token>(i * 7 % vocabulary);
    biases.push_back({id, random.below(4) == 0 ? -kInfinity : 4 * random.normal()});
  }
  std::ranges::sort(biases, {}, &LogitBias::id);
  const auto twice = std::ranges::unique(biases, {}, &LogitBias::id);
  biases.erase(twice.begin(), twice.end());
  return biases;
}

constexpr double kTooNear = 1e-4;  // in sums, distances are multiples of 2^-16

TEST(SamplerCuts, DrawWhatTheSlowReferenceDraws) {
  constexpr int kTrials = 3000;
  Random random(5);
  int compared = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const std::size_t vocabulary = 30 + random.below(trial % 10 == 0 ? 3000 : 200);
    const auto logits = random_logits(random, vocabulary, 2.5f);
    SamplingSettings s = plain();
    s.temperature = 0.3f + 1.5f * random.uniform();
    s.logit_bias = random_biases(random, vocabulary);
    if (random.below(2) == 0) s.top_k = static_cast<int>(1 + random.below(60));
    if (random.below(2) == 0) s.typical_p = random.uniform();
    if (random.below(3) == 0) s.top_n_sigma = 3 * random.uniform();
    if (random.below(2) == 0) s.xtc_probability = random.uniform();
    s.xtc_threshold = 0.6f * random.uniform();
    s.seed = random.bits();
    const SamplePoint point = {random.bits(), random.below(9), random.below(9)};
    const auto words = philox(s.seed, {point.index, point.reply, point.choice, 0});
    SlowRow row(logits, s.logit_bias);
    row.top_n_sigma(double{s.top_n_sigma});
    row.top_k(s.top_k);
    row.typical(double{s.typical_p});
    row.xtc(double{s.xtc_probability}, double{s.xtc_threshold}, unit_number(words[1]));
    const Token want = row.draw(double{s.temperature}, unit_number(words[0])).first;
    if (row.margin() < kTooNear) continue;
    ++compared;
    ASSERT_EQ(draw(s, logits, point), want) << "trial " << trial;
  }
  EXPECT_GT(compared, kTrials * 8 / 10);
}

TEST(SamplerCuts, MirostatDrawsAndFollowsAsTheSlowReferenceDoes) {
  constexpr int kReplies = 120, kTokens = 20;
  Random random(6);
  int compared = 0;
  for (int reply = 0; reply < kReplies; ++reply) {
    const std::size_t vocabulary = 30 + random.below(2000);
    SamplingSettings s = plain();
    s.mirostat = 2;
    s.mirostat_ent = 1 + 4 * random.uniform();
    s.mirostat_lr = 0.05f + 0.5f * random.uniform();
    s.temperature = 0.5f + random.uniform();
    s.top_k = 3;  // has no effect
    s.seed = random.bits();
    Sampler sampler(s, vocabulary, {});
    double mu = 2 * double{s.mirostat_ent};
    for (std::uint32_t index = 0; index < kTokens; ++index) {
      const auto logits = random_logits(random, vocabulary, 2.5f);
      const auto words = philox(s.seed, {index, 0, 0, 0});
      SlowRow row(logits, {});
      row.mirostat(mu, double{s.temperature});
      const auto [want, surprise] = row.draw(double{s.temperature}, unit_number(words[0]));
      const Token drawn = draw(sampler, logits, {.index = index});
      if (row.margin() < 1e-5) break;  // from here on mu differs
      ++compared;
      ASSERT_EQ(drawn, want) << "reply " << reply << " token " << index;
      sampler.took();
      mu -= double{s.mirostat_lr} * (surprise - double{s.mirostat_ent});
    }
  }
  EXPECT_GT(compared, kReplies * kTokens * 8 / 10);
}

// The surprises are 1, 2, 3, 4 and 4 bits; mu is between two of them or just above one.
TEST(SamplerCuts, MirostatKeepsASurpriseThatEqualsMu) {
  const std::vector<double> halves = {0.5, 0.25, 0.125, 0.0625, 0.0625};
  auto s = plain();
  s.mirostat = 2;
  s.mirostat_lr = 0;
  for (const auto& [ent, kept] : std::vector<std::pair<float, std::size_t>>{
           {0, 1}, {0.45f, 1}, {1.001f, 2}, {1.45f, 2}, {1.501f, 3}, {2.001f, 5}}) {
    s.mirostat_ent = ent;  // mu is twice as large
    EXPECT_EQ(reachable(s, logits_of(halves)).size(), kept) << ent;
  }
}

TEST(SamplerCuts, MirostatHoldsTheSurprise) {
  Random random(7);
  auto s = plain();
  s.mirostat = 2;
  s.mirostat_ent = 3;
  Sampler sampler(s, 2000, {});
  double sum = 0;
  constexpr std::uint32_t kDraws = 3000;
  for (std::uint32_t i = 0; i < kDraws; ++i) {
    const auto logits = random_logits(random, 2000, 2);
    SampleRequest request = sampler.request({}, {.index = i});
    HostSampler().draw(logits, request);
    if (i >= kDraws / 2) sum += *request.surprise;
    sampler.took();
  }
  EXPECT_NEAR(sum / (kDraws / 2), 3, 0.15);
}

TEST(SamplerCuts, MirostatTakesRowsOfEveryShape) {
  auto s = plain();
  s.mirostat = 2;
  for (const auto& logits : std::vector<std::vector<float>>{{1},
                                                            {2, 2, 2, 2},
                                                            {-kInfinity, 3, -kInfinity},
                                                            {3e38f, -3e38f, 0, 1},
                                                            {-kInfinity, -kInfinity, 0, 0}}) {
    for (const float temperature : {1e-40f, 1.0f, 1e30f}) {
      s.temperature = temperature;
      for (const Token id : reachable(s, logits)) {
        EXPECT_NE(logits[static_cast<std::size_t>(id)], -kInfinity);
      }
    }
  }
  EXPECT_EQ(draw(s, {-kInfinity, -kInfinity}, {}), kAllBanned);
  EXPECT_EQ(draw(s, {0, kInfinity}, {}), bad_logit_of(1));
}

TEST(SamplerCuts, TypicalKeepsWhatIsNearestToTheExpectedSurprise) {
  auto s = plain();
  s.typical_p = 0.3f;
  // The entropy is 0.950; the scores are 0.439 for 0.6, and 0.659 for each 0.2.
  EXPECT_EQ(reachable(s, logits_of({0.6, 0.2, 0.2})), (std::set<Token>{0}));
  // The entropy is 1.505; the scores are 0.589 for 0.4, and 0.392 for each 0.15.
  const auto four = logits_of({0.4, 0.15, 0.15, 0.15, 0.15});
  const std::vector<std::pair<float, std::set<Token>>> cases = {{0, {1}},
                                                                {0.2f, {1, 2}},
                                                                {0.35f, {1, 2, 3}},
                                                                {0.55f, {1, 2, 3, 4}},
                                                                {0.7f, {0, 1, 2, 3, 4}},
                                                                {1, {0, 1, 2, 3, 4}}};
  for (const auto& [share, kept] : cases) {
    s.typical_p = share;
    EXPECT_EQ(reachable(s, four), kept) << share;
  }
}

TEST(SamplerCuts, WhatFollowsTypicalLooksAtWhatItLeft) {
  const auto four = logits_of({0.4, 0.15, 0.15, 0.15, 0.15});
  auto s = plain();
  s.typical_p = 0.55f;
  s.min_p = 0.9f;  // relative to 0.4, it would drop all four tokens with 0.15
  EXPECT_EQ(reachable(s, four), (std::set<Token>{1, 2, 3, 4}));
  s.top_p = 0.4f;  // keeps two of the four tokens
  EXPECT_EQ(reachable(s, four), (std::set<Token>{1, 2}));
}

TEST(SamplerCuts, XtcLeavesTheLeastProbableOfThoseAboveTheThreshold) {
  const auto logits = logits_of({0.4, 0.3, 0.2, 0.1});
  auto s = plain();
  s.xtc_probability = 1;
  const auto left = [&](float threshold) {
    s.xtc_threshold = threshold;
    return reachable(s, logits);
  };
  EXPECT_EQ(left(0.45f), (std::set<Token>{0, 1, 2, 3}));
  EXPECT_EQ(left(0.35f), (std::set<Token>{0, 1, 2, 3}));  // a single candidate is kept
  EXPECT_EQ(left(0.25f), (std::set<Token>{1, 2, 3}));
  EXPECT_EQ(left(0.15f), (std::set<Token>{2, 3}));
  EXPECT_EQ(left(0.05f), (std::set<Token>{3}));
  EXPECT_EQ(left(0), (std::set<Token>{3}));
  EXPECT_EQ(left(0.6f), (std::set<Token>{0, 1, 2, 3}));
  // Two tokens have probabilities of exactly 0.5, which is the largest possible threshold.
  s.xtc_threshold = 0.5f;
  EXPECT_EQ(reachable(s, {1, 1}), (std::set<Token>{1}));
  // A token with an impossible logit does not count.
  s.xtc_threshold = 0;
  EXPECT_EQ(reachable(s, {1, 1, -kInfinity}), (std::set<Token>{1}));
}

TEST(SamplerCuts, XtcActsAsOftenAsItsProbabilitySays) {
  const auto logits = logits_of({0.5, 0.5});
  auto s = plain();
  s.top_k = 2;
  s.xtc_threshold = 0.1f;
  constexpr std::uint32_t kDraws = 20000;
  for (const float probability : {0.0f, 0.25f, 1.0f}) {
    s.xtc_probability = probability;
    Sampler sampler(s, 2, {});
    int second = 0;
    for (std::uint32_t i = 0; i < kDraws; ++i) second += draw(sampler, logits, {.index = i});
    // The second token gets half of the draws that XTC skips, and all other draws.
    EXPECT_NEAR(second / double{kDraws}, 0.5 + double{probability} / 2, 0.012) << probability;
  }
}

TEST(SamplerCuts, XtcsCoinIsTheSecondWordOfPhilox) {
  SamplingSettings s = plain();
  s.seed = 99;
  const auto request = Sampler(s, 4, {}).request({}, {3, 2, 1});
  EXPECT_EQ(request.rule.coin, philox(99, {3, 2, 1, 0})[1]);
}

TEST(SamplerCuts, TopNSigmaMeasuresFromTheLargestLogit) {
  // A token is kept if its logit is within n standard deviations of the largest logit.
  const std::vector<float> logits = {2, 4, 4, 4, 5, 5, 7, 1};
  // The mean is 4; squares 4 + 0 + 0 + 0 + 1 + 1 + 9 + 9 = 24 give the deviation 1.732.
  auto s = plain();
  s.temperature = 50;
  const auto kept = [&](float n) {
    s.top_n_sigma = n;
    return reachable(s, logits).size();
  };
  EXPECT_EQ(kept(1), 1u);      // down to 5.27
  EXPECT_EQ(kept(1.16f), 3u);  // 4.99
  EXPECT_EQ(kept(2), 6u);      // 3.54
  EXPECT_EQ(kept(0), 8u);
  EXPECT_EQ(kept(-1), 8u);
  s.top_n_sigma = 1;
  EXPECT_EQ(reachable(s, {3, 3, 3}).size(), 3u);  // deviation 0
  EXPECT_EQ(draw(s, {-kInfinity, -kInfinity}, {}), kAllBanned);
  EXPECT_EQ(reachable(s, {-kInfinity, 1}), (std::set<Token>{1}));
}

TEST(SamplerCuts, DoNothingAtTemperatureZero) {
  Random random(8);
  for (int trial = 0; trial < 50; ++trial) {
    const auto logits = random_logits(random, 300, 2);
    const auto largest = static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
    SamplingSettings s = plain();
    s.temperature = 0;
    s.typical_p = 0.1f;
    s.top_n_sigma = 0.1f;
    s.xtc_probability = 1;
    s.xtc_threshold = 0;
    s.mirostat = 2 * (trial % 2);
    EXPECT_EQ(draw(s, logits, {.index = static_cast<std::uint32_t>(trial)}), largest);
  }
}

TEST(LogitBiases, ActAtTemperatureZeroToo) {
  SamplingSettings s = plain();
  s.temperature = 0;
  const std::vector<float> logits = {1, 5, 4};
  s.logit_bias = {{0, 4.5f}};
  EXPECT_EQ(draw(s, logits, {}), 0);
  s.logit_bias = {{1, -kInfinity}};
  EXPECT_EQ(draw(s, logits, {}), 2);
  s.logit_bias = {{1, -kInfinity}, {1, 0}};  // the last one counts
  EXPECT_EQ(draw(s, logits, {}), 1);
}

TEST(LogitBiases, ComeBeforePenaltiesAndLiftNoBan) {
  SamplingSettings s = plain();
  s.temperature = 0;
  s.penalties_when_greedy = true;
  s.repeat_penalty = 2;
  s.logit_bias = {{0, 3}, {2, 100}};
  Sampler sampler(s, 3, std::vector<Token>{2});
  // The bias is added first: (-2 + 3) / 2 = 0.5. A penalty before it would give 2 * -2 + 3 = -1.
  const std::vector<float> logits = {-2, 0.25f, 0};
  const std::vector<Token> context = {0};
  EXPECT_EQ(HostSampler().draw(logits, sampler.request(context, {})), 0);
  EXPECT_EQ(HostSampler().draw({{-2.0f, 0.75f, 0.0f}}, sampler.request(context, {})), 1);
}

TEST(LogitBiases, AreForTokensOfTheModel) {
  SamplingSettings s;
  s.logit_bias = {{300, 1}};
  EXPECT_NO_THROW(Sampler(s, 301, {}));
  test::expect_error(
      [&] { Sampler(s, 300, {}); },
      {"logit_bias is for token 300, expected an id below the model's vocabulary of 300"},
      ErrorKind::bad_setting);
}

}  // namespace
}  // namespace leq
