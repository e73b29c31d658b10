// Blocks allocated from a range are aligned and disjoint, and are reused after they are freed.
#include "cuda/host/arena.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace leq::LEQ_GPU {
namespace {

TEST(Arena, FillsAPlanToTheLastByte) {
  Arena arena(4 * 256);
  EXPECT_EQ(arena.take(1), 0u);
  EXPECT_EQ(arena.take(257), 256u);
  EXPECT_EQ(arena.take(256), 768u);
  EXPECT_FALSE(arena.take(1));
}

TEST(Arena, TakesAGapThatIsLargeEnoughAndNoOther) {
  Arena arena(10 * 256);
  EXPECT_EQ(arena.take(2 * 256), 0u);
  EXPECT_EQ(arena.take(256), 512u);
  EXPECT_EQ(arena.take(3 * 256), 768u);
  arena.give_back(512);
  EXPECT_EQ(arena.take(2 * 256), 6u * 256) << "the gap holds 256 bytes";
  EXPECT_EQ(arena.take(100), 512u);
  arena.give_back(0);
  EXPECT_EQ(arena.take(512), 0u);
}

TEST(Arena, TheLastBlockLeavesTheRestWhole) {
  Arena arena(8 * 256);
  EXPECT_EQ(arena.take_last(2 * 256), 6u * 256);
  EXPECT_EQ(arena.take(6 * 256), 0u);
  EXPECT_FALSE(arena.take_last(1));
  arena.give_back(6 * 256);
  EXPECT_EQ(arena.take(2 * 256), 6u * 256);
  arena.give_back(6 * 256);
  EXPECT_FALSE(arena.take_last(3 * 256));
}

TEST(Arena, BlocksNeverOverlap) {
  constexpr std::size_t kBytes = 1 << 20;
  Arena arena(kBytes);
  std::mt19937 random(5);
  std::map<std::size_t, std::size_t> blocks;  // begin, end
  for (int step = 0; step < 3000; ++step) {
    if (!blocks.empty() && random() % 3 == 0) {
      const auto gone = std::next(blocks.begin(), random() % blocks.size());
      arena.give_back(gone->first);
      blocks.erase(gone);
      continue;
    }
    const std::size_t bytes = 1 + random() % 20000;
    const auto begin = random() % 4 == 0 ? arena.take_last(bytes) : arena.take(bytes);
    if (!begin) continue;
    EXPECT_EQ(*begin % Arena::kAlignment, 0u);
    ASSERT_LE(*begin + bytes, kBytes);
    const auto next = blocks.lower_bound(*begin);
    ASSERT_TRUE(next == blocks.end() || *begin + bytes <= next->first) << step;
    ASSERT_TRUE(next == blocks.begin() || std::prev(next)->second <= *begin) << step;
    blocks[*begin] = *begin + bytes;
  }
  for (const auto& [begin, end] : blocks) arena.give_back(begin);
  EXPECT_TRUE(arena.empty());
  EXPECT_EQ(arena.take(kBytes), 0u);
}

}  // namespace
}  // namespace leq::LEQ_GPU
