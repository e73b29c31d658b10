// Compares Philox with the known answers published by its authors (Random123, kat_vectors).
#include "base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace leq {
namespace {

TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox(0, {0, 0, 0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox(~0ull, {kOnes, kOnes, kOnes, kOnes}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // Key and counter are the digits of pi; the key's low word comes first.
  EXPECT_EQ(philox(0x299f31d0a4093822ull, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, UniformStaysBelowOneAndFillsItsRange) {
  Random random(7);
  float low = 1, high = 0;
  double sum = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const float r = random.uniform();
    low = std::min(low, r);
    high = std::max(high, r);
    sum += double{r};
  }
  EXPECT_GE(low, 0.0f);
  EXPECT_LT(high, 1.0f);
  EXPECT_LT(low, 1e-3f);
  EXPECT_GT(high, 0.999f);
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);  // five standard errors
}

TEST(Random, BelowReachesEveryValueAndNoOther) {
  Random random(1);
  std::set<std::uint32_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random.below(7));
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(*seen.rbegin(), 6u);
}

}  // namespace
}  // namespace leq
