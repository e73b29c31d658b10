// Weights converted from a file's layout to the device's layout: every code, scale and float is
// found at its position.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "cuda/kernels/launch.h"
#include "cuda/layout/layout.h"
#include "device_memory.h"

namespace leq::LEQ_GPU {
namespace {

template <class T>
std::vector<T> random_numbers(std::int64_t count) {
  std::mt19937 random(21);
  std::vector<T> numbers(static_cast<std::size_t>(count));
  for (T& number : numbers) number = static_cast<T>(random());
  return numbers;
}

// The code of (row, k) in a file's panels of 64 rows, columns in quads (docs/leq-format.md).
int panel_code(const std::vector<std::uint8_t>& panels, int bits, std::int64_t columns,
               std::int64_t row, std::int64_t k) {
  const std::int64_t byte =
      row / 64 * (64 * columns * bits / 8) + k / 4 / (8 / bits) * 256 + row % 64 * 4 + k % 4;
  return panels[static_cast<std::size_t>(byte)] >> bits * (k / 4 % (8 / bits)) & ((1 << bits) - 1);
}

TEST(Upload, CodesOfEveryWidthLieWhereTheLayoutSays) {
  constexpr std::int64_t kRows = 192, kColumns = 384;
  for (const int bits : {2, 4, 8}) {
    const auto panels = random_numbers<std::uint8_t>(kRows * kColumns * bits / 8);
    const DeviceArray<std::uint8_t> from(panels), to(panels.size());
    launch_upload_codes({from.data(), to.data(), bits, kRows, kColumns}, test_stream());
    const auto planes = to.host();
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t k = 0; k < kColumns; ++k) {
        const auto at = static_cast<std::size_t>(row * kColumns * bits / 8 + code_byte(bits, k));
        ASSERT_EQ(planes[at] >> code_shift(bits, k) & ((1 << bits) - 1),
                  panel_code(panels, bits, kColumns, row, k))
            << bits << " bits, row " << row << ", column " << k;
      }
    }
  }
}

// Returns number i of the 32 numbers in three words, where each byte belongs to one of four
// columns; follows the description in layout.h bit by bit.
int three_bit_number(const std::uint32_t (&words)[3], int i) {
  const int quad = i / 4, byte = 8 * (i % 4);
  // Returns bit byte + at of a word; 0 if this is negative (a bit before the word's first byte).
  const auto bit = [&](int word, int at) {
    return byte + at < 0 ? 0 : static_cast<int>(words[word] >> (byte + at) & 1u);
  };
  int number = 0;
  for (int b = 0; b < 3; ++b) {  // from the lowest bit
    int found = 0;
    if (quad < 6) found = bit(quad / 2, (quad % 2 == 0 ? 5 : 2) + b);
    if (quad == 6) found = bit(0, b - 1) ^ bit(2, b);
    if (quad == 7) found = bit(1, b - 1) ^ bit(2, b + 1);
    number |= found << b;
  }
  return number < 4 ? number : number - 8;
}

TEST(Upload, ThreeBitsLieWhereTheLayoutSays) {
  constexpr std::int64_t kRows = 192, kColumns = 384, kRowBytes = kColumns * 3 / 8;
  const auto low = random_numbers<std::uint8_t>(kRows * kColumns / 4);
  auto high = random_numbers<std::uint8_t>(kRows * kColumns / 8 + 1);
  high.erase(high.begin());  // other bits than the low ones
  const DeviceArray<std::uint8_t> from(low), thirds(high), to(kRows * kRowBytes);
  launch_upload_codes({from.data(), to.data(), 3, kRows, kColumns}, test_stream());
  launch_upload_codes({thirds.data(), to.data(), 3, kRows, kColumns, true}, test_stream());
  const auto found = to.host();
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t k = 0; k < kColumns; ++k) {
      std::uint32_t words[3];
      for (int chunk = 0; chunk < 3; ++chunk) {
        const std::int64_t at = row * kRowBytes + k / 128 * 48 + chunk * 16 + k % 16 / 4 * 4;
        std::memcpy(&words[chunk], &found[static_cast<std::size_t>(at)], 4);
      }
      const int code = panel_code(low, 2, kColumns, row, k) | panel_code(high, 1, kColumns, row, k)
                                                                  << 2;
      ASSERT_EQ(three_bit_number(words, static_cast<int>(k % 128 / 16 * 4 + k % 4)), code - 4)
          << "row " << row << ", column " << k;
    }
  }
}

template <class Element, class Stored = Element>
void expect_groups() {
  constexpr std::int64_t kRows = 128, kGroups = 5;
  constexpr bool kHalves = sizeof(Stored) < sizeof(Element);    // bits 7 to 14 of f16 numbers
  const auto stored = random_numbers<Stored>(kRows * kGroups);  // [N/64][G][64]
  const DeviceArray<Stored> from(stored);
  const DeviceArray<Element> to(stored.size());
  launch_upload_groups({from.data(), to.data(), sizeof(Element), kHalves, kRows, kGroups},
                       test_stream());
  const auto found = to.host();
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t group = 0; group < kGroups; ++group) {
      const int number =
          stored[static_cast<std::size_t>((row / 64 * kGroups + group) * 64 + row % 64)];
      ASSERT_EQ(found[static_cast<std::size_t>(row * kGroups + group)],
                kHalves ? number * 128 : number);
    }
  }
}

TEST(Upload, ScalesAndZeroPointsOfARowBecomeNeighbours) {
  expect_groups<std::uint8_t>();
  expect_groups<std::uint16_t>();
  expect_groups<std::uint16_t, std::uint8_t>();
}

template <class Element>
void expect_floats() {
  constexpr std::int64_t kRows = 7, kColumns = 45;
  const auto stored = random_numbers<Element>(kRows * kColumns);
  const DeviceArray<Element> from(stored);
  const std::int64_t stride = float_stride(kColumns);
  const DeviceArray<Element> to(static_cast<std::size_t>(kRows * stride));
  launch_upload_floats({from.data(), to.data(), sizeof(Element), kRows, kColumns}, test_stream());
  const auto found = to.host();
  for (std::int64_t i = 0; i < kRows * stride; ++i) {
    const std::int64_t row = i / stride, k = i % stride;
    const Element want =
        k < kColumns ? stored[static_cast<std::size_t>(row * kColumns + k)] : Element{0};
    ASSERT_EQ(found[static_cast<std::size_t>(i)], want) << "row " << row << ", column " << k;
  }
}

TEST(Upload, FloatsHaveZerosInTheirPads) {
  expect_floats<std::uint16_t>();
  expect_floats<std::uint32_t>();
}

}  // namespace
}  // namespace leq::LEQ_GPU
