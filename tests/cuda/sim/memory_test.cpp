// A plan's memory is allocated once and divided into blocks; a plan that does not fit is refused.
#include "cuda/host/device_memory.h"

#include <gtest/gtest.h>

#include "../device_memory.h"
#include "base/error.h"
#include "cuda/emulated/emulated_device.h"

namespace leq::LEQ_GPU {
namespace {

constexpr std::size_t kMb = 1 << 20;

class MemoryTest : public testing::Test {
 protected:
  // Leaves `free` bytes on the emulated device in addition to the memory used by other tests.
  void leave(std::size_t free) {
    rt::set_emulated_memory(std::size_t{64} << 30);
    const rt::MemoryInfo memory = rt::memory_of(0);
    rt::set_emulated_memory(memory.total_bytes - memory.free_bytes + free);
  }
  void TearDown() override { rt::set_emulated_memory(std::size_t{64} << 30); }
};

std::size_t free_bytes() { return rt::memory_of(0).free_bytes; }

TEST_F(MemoryTest, APlanIsTakenAtOnceAndGivenBackWithItsLastBlock) {
  leave(10 * kMb);
  Regions memory(0, 0);
  memory.plan(6 * kMb);
  EXPECT_EQ(free_bytes(), 4 * kMb);
  std::byte* a = memory.allocate(4 * kMb, test_stream());
  std::byte* b = memory.allocate(2 * kMb, test_stream());
  EXPECT_EQ(free_bytes(), 4 * kMb) << "both are of the plan";
  memory.release(a);
  EXPECT_EQ(free_bytes(), 4 * kMb);
  a = memory.allocate(3 * kMb, test_stream());
  EXPECT_EQ(free_bytes(), 4 * kMb) << "the gap is used";
  memory.release(a);
  memory.release(b);
  EXPECT_EQ(free_bytes(), 10 * kMb);
}

// Allocates through the backend, which counts bytes; upload slots share memory with later blocks.
TEST_F(MemoryTest, BlocksOfAPlanAreCounted) {
  leave(10 * kMb);
  GpuMemory memory(0, test_stream(), 0);
  memory.plan(2 * kMb, 4 * kMb);
  EXPECT_EQ(free_bytes(), 4 * kMb);
  EXPECT_EQ(memory.allocated(), 0u);
  Buffer weights(memory, 2 * kMb);
  memory.finish_placing();
  Buffer other(memory, 4 * kMb - 100);
  EXPECT_EQ(free_bytes(), 4 * kMb) << "both are of the plan";
  EXPECT_EQ(memory.allocated(), 6 * kMb) << "whole units";
  other = Buffer();
  other = Buffer(memory, 3 * kMb);
  EXPECT_EQ(free_bytes(), 4 * kMb) << "the gap is used";
  other = Buffer();
  EXPECT_EQ(memory.scratch(kMb).size(), kMb);
  EXPECT_EQ(memory.allocated(), 3 * kMb);
  weights = Buffer();
  EXPECT_EQ(memory.allocated(), 0u) << "scratch keeps no plan's memory";
  EXPECT_EQ(free_bytes(), 10 * kMb);
  EXPECT_EQ(memory.peak(), 6 * kMb);
}

TEST_F(MemoryTest, BlocksAreZeroedInOrder) {
  leave(10 * kMb);
  Regions memory(0, 0);
  memory.plan(kMb);
  std::byte* data = memory.allocate(kMb, test_stream());
  std::vector<std::byte> found(kMb);
  rt::copy_to_host(found.data(), data, kMb, test_stream());
  rt::synchronize(test_stream());
  EXPECT_EQ(found, std::vector<std::byte>(kMb));
  memory.release(data);
}

TEST_F(MemoryTest, WhatNoPlanHoldsIsTakenByItself) {
  leave(10 * kMb);
  Regions memory(0, 0);
  memory.plan(kMb);
  std::byte* planned = memory.allocate(kMb, test_stream());
  std::byte* other = memory.allocate(2 * kMb, test_stream());
  EXPECT_EQ(free_bytes(), 7 * kMb);
  EXPECT_THROW(memory.allocate(8 * kMb, test_stream()), Error);
  memory.release(other);
  EXPECT_EQ(free_bytes(), 9 * kMb);
  memory.release(planned);
}

TEST_F(MemoryTest, ALaterPlanTakesThePlaceOfOneThatWasNotUsed) {
  leave(10 * kMb);
  Regions memory(0, 0);
  memory.plan(6 * kMb);
  memory.plan(8 * kMb);
  EXPECT_EQ(free_bytes(), 2 * kMb);
}

TEST_F(MemoryTest, TheRoomIsWhatIsFreeLessTwoPercentOrTheCap) {
  leave(100 * kMb);
  const std::size_t total = rt::memory_of(0).total_bytes;
  EXPECT_EQ(Regions(0, 0).info().bytes, 100 * kMb - total / 50);
  EXPECT_EQ(Regions(0, 0).info().total, total);
  Regions capped(0, 30 * kMb);
  EXPECT_EQ(capped.info().bytes, 30 * kMb);
  capped.plan(20 * kMb);
  EXPECT_EQ(capped.info().bytes, 10 * kMb);
  EXPECT_THROW(capped.allocate(31 * kMb, test_stream()), Error);
  EXPECT_EQ(Regions(0, 200 * kMb).info().bytes, 80 * kMb - total / 50) << "less is free";
}

TEST_F(MemoryTest, AnErrorNamesBothSizes) {
  leave(10 * kMb);
  Regions memory(0, 0);
  try {
    memory.plan(20 * kMb);
    FAIL() << "20 MB fit into 10";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("21.0 MB"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("smaller context"), std::string::npos) << error.what();
    EXPECT_EQ(error.kind(), ErrorKind::no_memory);
  }
}

}  // namespace
}  // namespace leq::LEQ_GPU
