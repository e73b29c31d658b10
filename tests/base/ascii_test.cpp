#include "base/ascii.h"

#include <gtest/gtest.h>

#include <string>

namespace leq {
namespace {

// Only the 26 letters change: neighbours in the table and bytes of UTF-8 stay.
TEST(Ascii, OtherCaseIsThatOfLettersAlone) {
  const std::string capitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", small = "abcdefghijklmnopqrstuvwxyz";
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const auto big = capitals.find(c), little = small.find(c);
    EXPECT_EQ(ascii_lower(c), big != std::string::npos ? small[big] : c) << byte;
    EXPECT_EQ(ascii_upper(c), little != std::string::npos ? capitals[little] : c) << byte;
  }
  EXPECT_EQ(ascii_lower("Q4_K Ä\xc3"), "q4_k Ä\xc3");
  EXPECT_EQ(ascii_upper("q4_k ä"), "Q4_K ä");
}

TEST(Ascii, TextsAreTheSameInAnyCase) {
  EXPECT_TRUE(same_ignoring_case("Q4_k_M", "q4_K_m"));
  EXPECT_TRUE(same_ignoring_case("", ""));
  EXPECT_FALSE(same_ignoring_case("q4", "q4_"));
  EXPECT_FALSE(same_ignoring_case("[", "{")) << "32 apart as letters are";
  EXPECT_FALSE(same_ignoring_case("@", "`"));
}

}  // namespace
}  // namespace leq
