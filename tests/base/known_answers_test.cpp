// Third-party vectors of SHA-256 (FIPS 180-4) and Philox4x32-10 (Random123's kat_vectors).
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "base/random.h"
#include "base/sha256.h"

namespace leq {
namespace {

TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, {0, 0, 0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox(~0ull, {kOnes, kOnes, kOnes, kOnes}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822ull, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, IsTheStreamOfPhiloxBlocksAndKeepsItsRanges) {
  Random random(42);
  for (std::uint32_t block = 0; block < 3; ++block) {
    for (const std::uint32_t word : philox(42, {block, 0, 0, 0})) EXPECT_EQ(random.bits(), word);
  }
  double sum = 0;
  double squares = 0;
  constexpr int kCount = 100'000;
  std::set<std::uint32_t> seen;
  for (int i = 0; i < kCount; ++i) {
    const float u = random.uniform();
    ASSERT_GE(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    const std::uint32_t below = random.below(7);
    ASSERT_LT(below, 7u);
    seen.insert(below);
    const double x = static_cast<double>(random.normal());
    sum += x;
    squares += x * x;
  }
  EXPECT_EQ(seen.size(), 7u);
  // Five standard errors of the mean, and about as much of the variance.
  EXPECT_NEAR(sum / kCount, 0, 5 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 1, 0.02);
}

}  // namespace
}  // namespace leq
