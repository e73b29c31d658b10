// Reads from untrusted bytes: every length is checked, and no sum overflows.
#include "base/bytes.h"

#include <gtest/gtest.h>

#include <array>

namespace leq {
namespace {

TEST(ByteReader, ReadsLittleEndianAndNamesWhatIsMissing) {
  const std::array<std::byte, 6> bytes = {std::byte{1}, std::byte{2}, std::byte{3},
                                          std::byte{4}, std::byte{5}, std::byte{6}};
  ByteReader reader(bytes, "a.bin");
  EXPECT_EQ(reader.read<std::uint32_t>("count"), 0x04030201u);
  EXPECT_EQ(reader.left(), 2u);
  try {
    reader.read<std::uint32_t>("length");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a.bin: length at offset 4 needs 4 bytes, only 2 are left");
  }
  EXPECT_THROW(reader.take(UINT64_MAX, "all"), Error);
  EXPECT_EQ(reader.take(2, "rest").size(), 2u);
  EXPECT_EQ(reader.take(0, "nothing").size(), 0u);
  EXPECT_THROW(reader.take(1, "more"), Error);
}

TEST(CheckedArithmetic, RefusesWhatWraps) {
  EXPECT_EQ(checked_multiply(1ull << 32, (1ull << 32) - 1, "x"), ((1ull << 32) - 1) << 32);
  EXPECT_THROW(checked_multiply(1ull << 32, 1ull << 32, "x"), Error);
}

TEST(RoundUp, ReachesTheNextMultiple) {
  EXPECT_EQ(round_up(0, 64), 0);
  EXPECT_EQ(round_up(1, 64), 64);
  EXPECT_EQ(round_up(64, 64), 64);
  EXPECT_EQ(round_up(65, 64), 128);
}

}  // namespace
}  // namespace leq
