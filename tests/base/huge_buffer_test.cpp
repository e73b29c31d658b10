#include "base/huge_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "base/error.h"

namespace leq {
namespace {

TEST(HugeBuffer, IsZeroedAlignedAndWritableToItsLastByte) {
  constexpr std::uint64_t kBytes = (std::uint64_t{5} << 20) + 3;
  HugeBuffer buffer(kBytes, "test");
  ASSERT_EQ(buffer.size(), kBytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u);
  EXPECT_EQ(buffer.data()[0], std::byte{0});
  EXPECT_EQ(buffer.data()[kBytes - 1], std::byte{0});
  buffer.data()[kBytes - 1] = std::byte{7};
  EXPECT_EQ(buffer.bytes().back(), std::byte{7});
}

TEST(HugeBuffer, MovesItsMemory) {
  HugeBuffer first(64, "test");
  std::byte* data = first.data();
  HugeBuffer second(std::move(first));
  EXPECT_EQ(second.data(), data);
  HugeBuffer third;
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.size(), 64u);
}

TEST(HugeBuffer, NamesWhatItCannotTake) {
  EXPECT_THROW(HugeBuffer(UINT64_MAX, "weights"), Error);
  EXPECT_THROW(HugeBuffer(0, "weights"), Error);
}

}  // namespace
}  // namespace leq
