// Tests the integer arithmetic of sampling in edge cases with constructed masses: a draw or a share
// that equals a prefix's mass, cuts that keep all tokens or one, weights that equal min-p.
#include "sampling/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "base/float_math.h"
#include "base/random.h"

namespace leq {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::uint64_t kOne = std::uint64_t{1} << 40;  // the mass of the largest logit
constexpr std::uint32_t kLast = ~0u;                    // draws the last token

TEST(SampleGoals, ADrawIsTheFirstMassAboveItsShare) {
  // r = 1/4 of a total of 16: a prefix of mass 4 does not exceed r * total, one of mass 5 does.
  constexpr std::uint32_t kQuarter = 1u << 30;
  EXPECT_EQ(draw_goal(kQuarter, 16), 5u);
  EXPECT_EQ(draw_goal(kQuarter - 1, 16), 4u);  // just below a quarter
  EXPECT_EQ(draw_goal(kQuarter, 17), 5u);      // 4.25
  EXPECT_EQ(draw_goal(kQuarter, 4 * kOne), kOne + 1);
  EXPECT_EQ(draw_goal(0, 1), 1u);
  EXPECT_EQ(draw_goal(0, kOne), 1u);
  EXPECT_EQ(draw_goal(kLast, 1), 1u);
  EXPECT_EQ(draw_goal(kLast, std::uint64_t{1} << 24), std::uint64_t{1} << 24);
  EXPECT_EQ(draw_goal(255, kOne), 1u);  // the low 8 bits have no effect
  EXPECT_EQ(draw_goal(256, kOne), (kOne >> 24) + 1);
}

// The goal is the smallest whole number above r * total; the test computes it in 128 bits.
TEST(SampleGoals, EveryDrawIsExact) {
  Random random(1);
  for (int trial = 0; trial < 100000; ++trial) {
    const std::uint64_t bits = std::uint64_t{random.bits()} << 32 | random.bits();
    const std::uint64_t total = (bits >> (1 + random.below(63))) + 1;  // up to 2^63
    std::uint32_t number = random.bits();
    if (trial % 4 == 0) number = number >> 28 << 28;  // many exact shares
    const Wide share = Wide{total} * (number >> 8);
    const auto expected = static_cast<std::uint64_t>(share >> 24) + 1;
    ASSERT_EQ(draw_goal(number, total), expected) << number << " of " << total;
    ASSERT_LE(expected, total);
  }
  constexpr std::uint64_t kMost = kOne * static_cast<std::uint64_t>(kLargestVocabulary);
  EXPECT_EQ(draw_goal(kLast, kMost), kMost - (kMost >> 24) + 1);
}

TEST(SampleGoals, TopPIsRoundedUpAndExactSharesStay) {
  EXPECT_EQ(top_p_goal(0.5f, 16), 8u);
  EXPECT_EQ(top_p_goal(0.5f, 17), 9u);
  EXPECT_EQ(top_p_goal(std::nextafter(0.5f, 1.0f), 16), 9u);
  EXPECT_EQ(top_p_goal(std::nextafter(0.5f, 0.0f), 16), 8u);
  EXPECT_EQ(top_p_goal(0.25f, 4 * kOne), kOne);
  EXPECT_EQ(top_p_goal(0, kOne), 0u);
  EXPECT_EQ(top_p_goal(1, kOne), kOne);
  EXPECT_EQ(top_p_goal(1, 4 * kOne + 1), 4 * kOne + 1);
  EXPECT_EQ(top_p_goal(std::numeric_limits<float>::denorm_min(), kOne), 1u);
}

TEST(SampleMasses, AWeightCountsInUnitsRoundedDown) {
  EXPECT_EQ(mass_of(1), kOne);
  EXPECT_EQ(mass_of(0x1p-40f), 1u);
  EXPECT_EQ(mass_of(0x1.fffffep-41f), 0u);
  EXPECT_EQ(mass_of(0x1.8p-39f), 3u);
  EXPECT_EQ(mass_of(0), 0u);
}

std::int32_t drawn(const std::vector<float>& logits, const SampleRule& rule) {
  return HostSampler().draw(logits, {rule, {}});
}

// Four masses of a quarter each, so r = 1/4 selects the second token.
TEST(HostSampler, ADrawOnTheBorderOfTwoTokensTakesTheSecond) {
  const std::vector<float> equal(4, 2.5f);
  for (std::uint32_t i = 1; i < 4; ++i) {
    const std::uint32_t border = i << 30;
    const auto token = static_cast<std::int32_t>(i);
    EXPECT_EQ(drawn(equal, {.random = border}), token);
    EXPECT_EQ(drawn(equal, {.random = border - 1}), token - 1);
    EXPECT_EQ(drawn(equal, {.random = border + 255}), token);
  }
  EXPECT_EQ(drawn(equal, {.random = 0}), 0);
  EXPECT_EQ(drawn(equal, {.random = kLast}), 3);
}

TEST(HostSampler, TopPKeepsAnExactShareAndOneMoreAboveIt) {
  const std::vector<float> equal(4, -1.0f);
  for (int kept = 1; kept < 4; ++kept) {
    const float share = static_cast<float>(kept) / 4;
    EXPECT_EQ(drawn(equal, {.top_p = share, .random = kLast}), kept - 1);
    EXPECT_EQ(drawn(equal, {.top_p = std::nextafter(share, 1.0f), .random = kLast}), kept);
    EXPECT_EQ(drawn(equal, {.top_p = std::nextafter(share, 0.0f), .random = kLast}), kept - 1);
  }
  EXPECT_EQ(drawn(equal, {.top_p = 0, .random = kLast}), 0);
  EXPECT_EQ(drawn(equal, {.top_p = 1, .random = kLast}), 3);
}

// Tests both algorithms for the k best tokens, and the switch between them at half the vocabulary.
TEST(HostSampler, TopKKeepsExactlyK) {
  for (const std::size_t vocabulary : {1u, 2u, 3u, 8u, 9u, 3000u}) {
    const std::vector<float> equal(vocabulary, 0.0f);
    for (std::size_t k = 1; k <= vocabulary + 1; k += vocabulary < 100 ? 1 : 499) {
      const auto last = static_cast<std::int32_t>(std::min(k, vocabulary)) - 1;
      EXPECT_EQ(drawn(equal, {.top_k = static_cast<std::int32_t>(k), .random = kLast}), last)
          << k << " of " << vocabulary;
    }
    EXPECT_EQ(drawn(equal, {.top_k = 0, .random = kLast}),
              static_cast<std::int32_t>(vocabulary) - 1);
  }
}

// The k best tokens of a row must be those of a full sort, also if logits are equal. They are drawn
// at a temperature at which all have about the same weight, so that each can be drawn.
TEST(HostSampler, TheBestKAreThoseOfASortedRow) {
  HostSampler sampler;
  Random random(7);
  for (const std::size_t vocabulary : {5u, 63u, 64u, 65u, 130u, 4096u, 32000u, 32003u}) {
    for (const int values : {3, 1000}) {  // many equal logits, few equal logits
      std::vector<float> logits(vocabulary);
      for (float& logit : logits) logit = static_cast<float>(random.bits() % values) / 16 - 20;
      std::vector<LogitChange> changes;
      for (std::size_t id = random.bits() % 40; id < vocabulary; id += 1 + random.bits() % 90) {
        changes.push_back(
            {static_cast<std::int32_t>(id), 0, random.bits() % 2 != 0 ? kNoLogit : 9, 0});
      }
      std::vector<std::uint64_t> allowed((vocabulary + 63) / 64);
      for (std::uint64_t& word : allowed) word = std::array{~0ull, 0ull, 5ull}[random.bits() % 3];
      allowed.back() = ~0ull;
      for (const bool masked : {false, true}) {
        std::vector<std::pair<float, std::int32_t>> best;  // -logit, id
        std::vector<float> changed = logits;
        for (const LogitChange& c : changes) changed[static_cast<std::size_t>(c.id)] += c.bias;
        for (std::size_t id = 0; id < vocabulary; ++id) {
          if (masked && (allowed[id / 64] >> id % 64 & 1) == 0) continue;
          if (changed[id] > kNoLogit) best.emplace_back(-changed[id], static_cast<int>(id));
        }
        std::ranges::sort(best);
        SampleRequest request = {{.temperature = 0}, changes};
        if (masked) request.allowed = allowed;
        EXPECT_EQ(sampler.draw(logits, request), best.front().second) << vocabulary;
        request.rule.temperature = 1e30f;
        for (const std::size_t k : {1u, 2u, 40u, 600u}) {
          if (k > best.size() || k >= vocabulary / 2) continue;
          request.rule.top_k = static_cast<std::int32_t>(k);
          for (const std::size_t place : {std::size_t{0}, k / 2, k - 1}) {
            // The random number is the middle of share number `place` of k equal shares.
            request.rule.random = static_cast<std::uint32_t>((static_cast<double>(place) + 0.5) /
                                                             static_cast<double>(k) * 0x1p32);
            ASSERT_EQ(sampler.draw(logits, request), best[place].second)
                << vocabulary << " " << values << " " << masked << " " << k << " " << place;
          }
        }
      }
    }
  }
}

TEST(HostSampler, TheFirstBadLogitIsNamedWhereverItLies) {
  HostSampler sampler;
  for (const std::size_t vocabulary : {1u, 7u, 64u, 200u}) {
    for (std::size_t bad = 0; bad < vocabulary; ++bad) {
      for (const float value : {std::nanf(""), -std::nanf(""), -kNoLogit}) {
        std::vector<float> logits(vocabulary, 1.0f);
        logits[bad] = logits.back() = value;
        EXPECT_EQ(sampler.draw(logits, {{}, {}}), bad_logit_of(static_cast<std::int32_t>(bad)));
      }
    }
    const std::vector<float> none(vocabulary, kNoLogit);
    EXPECT_EQ(sampler.draw(none, {{}, {}}), kAllBanned);
    EXPECT_EQ(sampler.draw(none, {{.temperature = 0}, {}}), kAllBanned);
  }
}

TEST(HostSampler, MinPKeepsAWeightThatEqualsIt) {
  const std::vector<float> logits = {3, 2};
  const float weight = leq_exp(-1.0f);
  EXPECT_EQ(drawn(logits, {.min_p = weight, .random = kLast}), 1);
  EXPECT_EQ(drawn(logits, {.min_p = std::nextafter(weight, 1.0f), .random = kLast}), 0);
  EXPECT_EQ(drawn(logits, {.min_p = 1, .random = kLast}), 0);
}

TEST(LogitChanges, ArePenaltiesOrNever) {
  const SampleRule rule = {
      .repeat_penalty = 2, .presence_penalty = 0.5f, .frequency_penalty = 0.25f};
  const auto changed = [&](float logit, int repeats) {
    return changed_logit(logit, rule, {.id = 7, .repeats = repeats});
  };
  EXPECT_EQ(changed_logit(4, rule, banned_token(7)), kNoLogit);
  EXPECT_EQ(changed(4, 0), 4);
  EXPECT_EQ(changed(4, 1), 2 - 0.75f);
  EXPECT_EQ(changed(4, 3), 2 - 1.25f);
  EXPECT_EQ(changed(-4, 1), -8 - 0.75f);
  EXPECT_EQ(changed(0, 1), -0.75f);
}

TEST(LogitChanges, AddABiasFirstAndSubtractLast) {
  const SampleRule rule = {.repeat_penalty = 2};
  // -1 + 5 is positive, so the sum is divided by the penalty.
  EXPECT_EQ(changed_logit(-1, rule, {.repeats = 1, .bias = 5, .minus = 0.5f}), 1.5f);
  EXPECT_EQ(changed_logit(-1, rule, {.bias = 5, .minus = 0.5f}), 3.5f);
  EXPECT_EQ(changed_logit(3e38f, rule, {.bias = 3e38f}), kLargestLogit);
  EXPECT_EQ(changed_logit(3e38f, rule, {.bias = 3e38f, .minus = kLargestLogit}), 0);
  EXPECT_EQ(changed_logit(-3e38f, rule, {.minus = 3e38f}), kNoLogit);
  EXPECT_EQ(changed_logit(kNoLogit, rule, {.repeats = 3, .bias = 5, .minus = 1}), kNoLogit);
  EXPECT_EQ(changed_logit(5, {.presence_penalty = -9}, {.repeats = 1, .bias = kNoLogit}), kNoLogit);
}

}  // namespace
}  // namespace leq
