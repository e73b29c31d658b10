// Data uploaded through slots is complete on the device, whatever runs first.
#include "cuda/host/uploader.h"

#include <gtest/gtest.h>

#include <random>

#include "cuda/intrinsics/simt.h"
#include "device_memory.h"

namespace leq::LEQ_GPU {
namespace {

class UploaderTest : public testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override { simt::schedule() = {GetParam(), simt::CopyLands::at_wait}; }
  void TearDown() override { simt::schedule() = {}; }
};

std::vector<std::uint8_t> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

// There are far more chunks than slots, so that slots are refilled while copies are in flight.
TEST_P(UploaderTest, BringsArraysOfManyChunksInOrder) {
  constexpr std::size_t kSlot = 4096;
  const DeviceArray<std::byte> landing(Uploader::kSlots * kSlot);
  Uploader uploader(0, test_stream(), landing.data(), kSlot);
  const auto first = random_bytes(100'003, 1), second = random_bytes(4096, 2),
             third = random_bytes(1, 3);
  const DeviceArray<std::uint8_t> a(first.size()), b(second.size()), c(third.size());
  std::vector<std::uint8_t> gone = first;  // the caller may free its memory once run returns
  uploader.copy(gone.data(), reinterpret_cast<std::byte*>(a.data()), 100'003);
  gone.assign(gone.size(), 0xee);
  uploader.copy(second.data(), reinterpret_cast<std::byte*>(b.data()), 4096);
  uploader.copy(third.data(), reinterpret_cast<std::byte*>(c.data()), 1);
  const UploadReport report = uploader.finish();
  EXPECT_EQ(report.bytes, 100'003u + 4096 + 1);
  EXPECT_GT(report.seconds, 0);
  EXPECT_EQ(a.host(), first);
  EXPECT_EQ(b.host(), second);
  EXPECT_EQ(c.host(), third);
}

TEST_P(UploaderTest, KeepsUnitsWholeAndGrowsForALargeOne) {
  Uploader uploader(0, test_stream(), nullptr, 1000);
  std::vector<std::pair<std::int64_t, std::int64_t>> seen;
  const auto bytes = random_bytes(7 * 3000, 4);
  const DeviceArray<std::uint8_t> there(bytes.size());
  const auto keep = [&](std::int64_t unit) {
    return [&, unit](const std::byte* landed, std::int64_t first, std::int64_t count) {
      seen.emplace_back(first, count);
      rt::copy_on_device(there.data() + first * unit, landed,
                         static_cast<std::size_t>(count * unit), test_stream());
    };
  };
  uploader.run(bytes.data(), 7, 300, keep(300));
  EXPECT_EQ(seen, (std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 3}, {3, 3}, {6, 1}}));
  uploader.run(bytes.data(), 7, 3000, keep(3000));
  uploader.finish();
  EXPECT_EQ(there.host(), bytes);
}

INSTANTIATE_TEST_SUITE_P(Seeds, UploaderTest, testing::Values(0u, 1u, 2u, 7u, 12345u));

}  // namespace
}  // namespace leq::LEQ_GPU
