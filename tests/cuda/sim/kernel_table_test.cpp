// The properties of kernels are requested from the runtime separately for each device.
#include "cuda/rt/kernel_table.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace leq::LEQ_GPU::rt {
namespace {

TEST(KernelTable, AsksOnceForEachKernelAndDevice) {
  KernelTable<int> table;
  const char kernels[2] = {};
  int asked = 0;
  const auto of = [&](int kernel, int device) {
    return table.of(&kernels[kernel], device, [&] {
      ++asked;
      return 10 * kernel + device;
    });
  };
  for (int round = 0; round < 2; ++round) {
    for (const int kernel : {0, 1}) {
      for (const int device : {0, 1, 7}) EXPECT_EQ(of(kernel, device), 10 * kernel + device);
    }
  }
  EXPECT_EQ(asked, 6);
}

TEST(KernelTable, KnowsNothingOfAKernelWhoseQuestionFailed) {
  KernelTable<int> table;
  const char kernel = 0;
  EXPECT_THROW(table.of(&kernel, 0, []() -> int { throw std::runtime_error("busy"); }),
               std::runtime_error);
  EXPECT_EQ(table.of(&kernel, 0, [] { return 3; }), 3);
}

}  // namespace
}  // namespace leq::LEQ_GPU::rt
