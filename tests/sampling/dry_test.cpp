// Compares DRY with a reference that tries every token at every position; tests breakers as texts.
#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/random.h"
#include "tokenizer/small_specs.h"

namespace leq {
namespace {

// Token n is the byte n; these tokens are followed by a few merges and "<end>".
const Tokenizer& bytes() {
  static const Tokenizer kTokenizer(test::small_byte_spec());
  return kTokenizer;
}

std::vector<Token> tokens_of(const std::string& text) {
  std::vector<Token> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

SamplingSettings dry(float multiplier = 1, float base = 2, int allowed = 2, int last = -1) {
  return {.dry_multiplier = multiplier,
          .dry_base = base,
          .dry_allowed_length = allowed,
          .dry_penalty_last_n = last};
}

std::map<char, float> costs(const std::string& text, const SamplingSettings& settings,
                            const std::vector<std::string>& breakers = {}) {
  const std::vector<Token> context = tokens_of(text);
  DryPenalty penalty;
  std::map<char, float> found;
  for (const LogitChange& change :
       penalty.changes(context, settings, DryBreakers(bytes(), breakers), bytes().size())) {
    EXPECT_EQ(change.repeats, 0);
    EXPECT_EQ(change.bias, 0);
    found[static_cast<char>(change.id)] = change.minus;
  }
  return found;
}

using Costs = std::map<char, float>;

TEST(Dry, CostsGrowWithTheSequenceThatWouldGoOn) {
  EXPECT_EQ(costs("abcd-ab", dry()), (Costs{{'c', 1}}));
  EXPECT_EQ(costs("abcd-abc", dry()), (Costs{{'d', 2}}));
  EXPECT_EQ(costs("xabcd-xabc", dry()), (Costs{{'d', 4}}));
  EXPECT_EQ(costs("xabcd-xabc", dry(0.5f, 3)), (Costs{{'d', 4.5f}}));
  EXPECT_EQ(costs("abcd-a", dry()), Costs());
  EXPECT_EQ(costs("abcd-a", dry(1, 2, 1)), (Costs{{'b', 1}}));
  EXPECT_EQ(costs("abcd", dry()), Costs());
  EXPECT_EQ(costs("", dry()), Costs());
}

TEST(Dry, OfSeveralSequencesTheLongestCounts) {
  // The end of the text occurred before: "ab" in front of c, "-xab" in front of d.
  EXPECT_EQ(costs("abc-xabd-xab", dry()), (Costs{{'c', 1}, {'d', 4}}));
  EXPECT_EQ(costs("abc+-xabc*-xab", dry()), (Costs{{'c', 4}}));
  EXPECT_EQ(costs("aaaa", dry()), (Costs{{'a', 2}}));  // sequences may overlap
}

TEST(Dry, OnlyTheLastTokensAreSearched) {
  EXPECT_EQ(costs("abcd-ab", dry(1, 2, 2, 7)), (Costs{{'c', 1}}));
  EXPECT_EQ(costs("abcd-ab", dry(1, 2, 2, 6)), Costs());
  EXPECT_FALSE(uses_dry(dry(1, 2, 2, 0)));
  EXPECT_FALSE(uses_dry(dry(0)));
  EXPECT_TRUE(uses_dry(dry()));
}

TEST(Dry, NoSequenceReachesOverABreaker) {
  EXPECT_EQ(costs("ab:cd-ab:c", dry()), (Costs{{'d', 4}}));
  EXPECT_EQ(costs("ab:cd-ab:c", dry(), {":"}), Costs());
  EXPECT_EQ(costs("ab:cde-ab:cd", dry(), {":"}), (Costs{{'e', 1}}));
  EXPECT_EQ(costs("abc:-abc", dry()), (Costs{{':', 2}}));
  EXPECT_EQ(costs("abc:-abc", dry(), {":"}), Costs());  // a breaker is not penalized
}

TEST(Dry, ABreakerOfSeveralTokensIsOneText) {
  EXPECT_EQ(costs("abxyzcd-abxyzc", dry(), {"xyz"}), Costs());
  EXPECT_EQ(costs("abxyzcde-abxyzcd", dry(), {"xyz"}), (Costs{{'e', 1}}));
  // x alone is not a breaker, and this y is not the end of the breaker "xyz".
  EXPECT_EQ(costs("abxcd-abxc", dry(), {"xyz"}), (Costs{{'d', 4}}));
}

// A token may contain a breaker and more text, or end with the beginning of a breaker.
TEST(Dry, TokensMayHoldABreakerOrItsBeginning) {
  const std::vector<Token> hello = bytes().encode(" hello", {.parse_special = false});
  ASSERT_EQ(hello.size(), 1u);
  const std::vector<std::string> inside = {"ll"}, beginning = {"lo!"}, other = {"lox"};
  std::vector<Token> context = {'a', hello[0], '!', 'c'};
  EXPECT_EQ(DryBreakers(bytes(), inside).tokens_since(context), 2u);
  EXPECT_TRUE(DryBreakers(bytes(), inside).is_breaker(hello[0]));
  EXPECT_EQ(DryBreakers(bytes(), beginning).tokens_since(context), 1u);
  EXPECT_FALSE(DryBreakers(bytes(), beginning).is_breaker(hello[0]));
  EXPECT_EQ(DryBreakers(bytes(), other).tokens_since(context), 4u);
  EXPECT_EQ(DryBreakers().tokens_since(context), 4u);
}

TEST(Dry, CostsStayNumbers) {
  const std::string text = std::string(3000, 'a');
  EXPECT_EQ(costs(text, dry(1, 1.75f)), (Costs{{'a', kLargestLogit}}));
  EXPECT_EQ(costs(text, dry(0.5f, 1)), (Costs{{'a', 0.5f}}));
  EXPECT_EQ(costs(text, dry(kLargestLogit, kLargestLogit)), (Costs{{'a', kLargestLogit}}));
}

// Checks for each token at each position whether the text before it ends like the whole text.
std::map<Token, double> slow_costs(const std::vector<Token>& context, const SamplingSettings& s,
                                   Token breaker) {
  const std::size_t n = context.size();
  std::size_t most = 0;
  while (most < n && context[n - 1 - most] != breaker) ++most;
  std::map<Token, double> found;
  for (std::size_t place = 1; place < n; ++place) {
    if (context[place] == breaker) continue;
    std::size_t length = 0;
    while (length < std::min(place, most) &&
           context[place - 1 - length] == context[n - 1 - length]) {
      ++length;
    }
    if (length < static_cast<std::size_t>(s.dry_allowed_length) ||
        most < static_cast<std::size_t>(s.dry_allowed_length)) {
      continue;
    }
    const double cost =
        double{s.dry_multiplier} *
        std::pow(double{s.dry_base}, static_cast<double>(length) - s.dry_allowed_length);
    double& entry = found[context[place]];
    entry = std::max(entry, cost);
  }
  return found;
}

TEST(Dry, EqualsTheSlowReference) {
  Random random(9);
  const std::vector<std::string> colon = {":"};
  const DryBreakers breakers(bytes(), colon);
  DryPenalty penalty;
  std::size_t costly = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const std::string letters = trial % 3 == 0 ? "ab" : "abcdefgh:";
    std::vector<Token> context;
    for (std::uint32_t i = random.below(60); i > 0; --i) {
      context.push_back(static_cast<unsigned char>(
          letters[random.below(static_cast<std::uint32_t>(letters.size()))]));
      // Occasionally some earlier tokens are repeated.
      if (random.below(8) == 0) {
        const auto from = random.below(static_cast<std::uint32_t>(context.size()));
        const std::vector<Token> again(context.begin() + from, context.end());
        context.insert(context.end(), again.begin(), again.end());
      }
      if (context.size() > 300) break;
    }
    SamplingSettings s = dry(0.8f, 1.0f + random.uniform(), static_cast<int>(random.below(5)));
    const auto want = slow_costs(context, s, ':');
    const auto found = penalty.changes(context, s, breakers, bytes().size());
    ASSERT_EQ(found.size(), want.size()) << "trial " << trial;
    auto expected = want.begin();
    for (const LogitChange& change : found) {
      EXPECT_EQ(change.id, expected->first);
      const double limit = std::min(expected->second, double{kLargestLogit});
      EXPECT_NEAR(double{change.minus}, limit, 1e-6 * limit);
      ++expected;
    }
    costly += want.size();
  }
  EXPECT_GT(costly, 3000u);
}

TEST(Dry, IsPartOfADrawAndOfGreedyOnesWhereItIsAskedFor) {
  std::vector<float> logits(bytes().size(), 0.0f);
  logits['c'] = 5;
  logits['q'] = 4.5f;
  SamplingSettings s = dry();
  s.temperature = 0;
  const auto drawn = [&](const std::string& text) {
    Sampler sampler(s, bytes().size(), {}, bytes());
    return HostSampler().draw(logits, sampler.request(tokens_of(text), {}));
  };
  EXPECT_EQ(drawn("abcd-ab"), 'c');
  s.penalties_when_greedy = true;
  EXPECT_EQ(drawn("abcd-ab"), 'q');
  EXPECT_EQ(drawn("a:bcd-a:b"), 'c');  // the default breakers contain a colon
  s.temperature = 0.01f;
  s.penalties_when_greedy = false;
  EXPECT_EQ(drawn("abcd-ab"), 'q');
}

}  // namespace
}  // namespace leq
