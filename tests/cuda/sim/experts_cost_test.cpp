// Tests that kernels of experts do work in proportion to their rows, whatever the number of
// experts.
#include <gtest/gtest.h>

#include <vector>

#include "../device_memory.h"
#include "cuda/kernels/experts/experts.h"
#include "cuda/sim/emulator.h"

namespace leq::LEQ_GPU {
namespace {

// Returns the collectives of group_rows for tokens of two neighbouring experts each.
std::uint64_t collectives_of_grouping(int tokens, int experts) {
  constexpr int kStride = 32, kActive = 2;
  std::vector<std::int32_t> choice(static_cast<std::size_t>(tokens * kStride));
  for (int t = 0; t < tokens; ++t) {
    for (int i = 0; i < kActive; ++i) {
      choice[static_cast<std::size_t>(t * kStride + i)] = t * kActive % experts + i;
    }
  }
  const DeviceArray<std::int32_t> there(choice), lists(2 * (kMaxExperts + 1));
  const ExpertGroups groups = {lists.data(), lists.data() + kMaxExperts + 1, experts};
  const std::uint64_t before = simt::collective_count();
  launch_group_rows(
      {{reinterpret_cast<float*>(there.data()), kStride, kActive}, tokens * kActive, groups},
      test_stream());
  rt::synchronize(test_stream());
  return simt::collective_count() - before;
}

TEST(GroupRowsCost, GrowsWithRowsAndNotWithExperts) {
  const std::uint64_t few = collectives_of_grouping(2048, 8);
  EXPECT_EQ(collectives_of_grouping(2048, 512), few);
  EXPECT_LE(collectives_of_grouping(4096, 8), 2 * few);
  // A match and two barriers for 32 rows, in parts of whole loads of 128; sums over the block.
  EXPECT_LE(few, 3 * 2 * 2048 / 32 + 32 * 2 * 10);
}

}  // namespace
}  // namespace leq::LEQ_GPU
