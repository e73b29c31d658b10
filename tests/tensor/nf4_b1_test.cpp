// nf4 and b1: levels and scales by definition; planes of both are read back by a second decoder
// written from docs/leq-format.md.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "base/random.h"
#include "tensor/nf4.h"
#include "tensor/pack.h"

namespace leq {
namespace {

std::vector<float> random_values(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  Random random(seed);
  for (float& value : values) value = random.normal() * 0.05f;
  return values;
}

// Returns the code of a row and column in a plane of `bits` bits in panels.
int naive_code(const std::vector<std::byte>& plane, int bits, int padded_columns, int r, int k) {
  const int per_byte = 8 / bits;
  const int byte =
      r / 64 * (64 * padded_columns * bits / 8) + k / 4 / per_byte * 256 + r % 64 * 4 + k % 4;
  const int value = std::to_integer<int>(plane[static_cast<std::size_t>(byte)]);
  return value >> (bits * (k / 4 % per_byte)) & ((1 << bits) - 1);
}

template <class T>
T number_at(const std::vector<std::byte>& plane, int index) {
  T value;
  std::memcpy(&value, plane.data() + static_cast<std::size_t>(index) * sizeof value, sizeof value);
  return value;
}

TEST(Nf4, LevelsAreNormalQuantiles) {
  // Phi(level * q) must be evenly spaced for the outermost quantile q: 8 levels above 0, 7 below.
  const auto share = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  constexpr double kOutermost = 1.848162;  // the quantile of 0.9677083
  constexpr double kTolerance = 1e-5;      // the levels have seven digits
  for (int i = 0; i < 8; ++i) {
    const double want = 0.5 + (0.9677083 - 0.5) * i / 8;
    const auto level = static_cast<double>(kNf4Levels[static_cast<std::size_t>(7 + i)]);
    EXPECT_NEAR(share(level * kOutermost), want, kTolerance) << i;
  }
  for (int i = 0; i < 7; ++i) {
    const double want = 0.5 - (0.9677083 - 0.5) * (7 - i) / 7;
    const auto level = static_cast<double>(kNf4Levels[static_cast<std::size_t>(i)]);
    EXPECT_NEAR(share(level * kOutermost), want, kTolerance) << i;
  }
}

TEST(Nf4, ChoosesTheNearestLevel) {
  Random random(3);
  for (int i = 0; i < 20000; ++i) {
    const double x = static_cast<double>(2.4f * random.uniform() - 1.2f);
    const auto distance = [&](int level) {
      return std::fabs(x - static_cast<double>(kNf4Levels[static_cast<std::size_t>(level)]));
    };
    int best = 0;
    for (int level = 1; level < 16; ++level) {
      if (distance(level) < distance(best)) best = level;
    }
    ASSERT_EQ(nearest_nf4(static_cast<float>(x)), best) << x;
  }
  for (int level = 0; level < 16; ++level) {
    EXPECT_EQ(nearest_nf4(kNf4Levels[static_cast<std::size_t>(level)]), level);
  }
}

TEST(Nf4, PlanesReadBackAsLevelTimesSize) {
  for (const auto& [rows, columns] : {std::pair(1, 1), {3, 64}, {65, 65}, {70, 300}, {64, 513}}) {
    const auto values = random_values(rows * columns, 5);
    const PackedWeight packed =
        pack_weight(values, rows, columns, *parse_scheme("nf4"), ActKind::none, "w");
    const int kp = (columns + 127) / 128 * 128;
    const int parts = (kp + 255) / 256;
    std::vector<float> row(static_cast<std::size_t>(columns));
    for (int r = 0; r < rows; ++r) {
      unpack_row(packed.view(), r, row);
      for (int k = 0; k < columns; ++k) {
        const int part = r / 64 * parts + k / 256;
        const auto u =
            number_at<std::uint8_t>(packed.zeros, (r / 64 * (kp / 64) + k / 64) * 64 + r % 64);
        const float size =
            std::fma(static_cast<float>(u), number_at<float>(packed.scales, part * 2 + 1),
                     number_at<float>(packed.scales, part * 2));
        const int code = naive_code(packed.codes, 4, kp, r, k);
        ASSERT_EQ(row[static_cast<std::size_t>(k)],
                  kNf4Levels[static_cast<std::size_t>(code)] * size);
        ASSERT_EQ(code_at(packed.view(), r, k), code);
        ASSERT_EQ(scale_at(packed.view(), r, k), size);
        // A block's scale is its largest value, to within half a step of 8 bits.
        float largest = 0;
        for (int i = k / 64 * 64; i < std::min(k / 64 * 64 + 64, columns); ++i) {
          largest = std::max(largest, std::fabs(values[static_cast<std::size_t>(r * columns + i)]));
        }
        ASSERT_NEAR(size, largest, 0.51f * number_at<float>(packed.scales, part * 2 + 1) + 1e-9f);
      }
    }
    for (int r = 0; r < rows; ++r) {
      for (int k = columns; k < kp; ++k) ASSERT_EQ(naive_code(packed.codes, 4, kp, r, k), 7);
    }
    for (int r = rows; r < (rows + 63) / 64 * 64; ++r) {
      for (int k = 0; k < kp; ++k) ASSERT_EQ(naive_code(packed.codes, 4, kp, r, k), 7);
    }
  }
}

TEST(Nf4, BlocksOfZerosStayZeros) {
  auto values = random_values(2 * 256, 6);
  for (std::size_t k = 64; k < 128; ++k) values[k] = 0;
  for (std::size_t k = 256; k < 320; ++k) values[k] = 1e-13f;
  const PackedWeight packed = pack_weight(values, 2, 256, *parse_scheme("nf4"), ActKind::none, "w");
  std::vector<float> row(256);
  unpack_row(packed.view(), 0, row);
  for (std::size_t k = 64; k < 128; ++k) EXPECT_EQ(row[k], 0.0f);
  unpack_row(packed.view(), 1, row);
  for (std::size_t k = 0; k < 64; ++k) EXPECT_EQ(row[k], 0.0f);
  const PackedWeight none =
      pack_weight(std::vector<float>(300), 1, 300, *parse_scheme("nf4"), ActKind::none, "w");
  std::vector<float> all(300, 1.0f);
  unpack_row(none.view(), 0, all);
  for (const float value : all) EXPECT_EQ(value, 0.0f);
}

// The four values of a code are the means plus or minus the sizes of its part.
TEST(B1, PlanesReadBackAsSignsMeansAndSizes) {
  const int rows = 67, columns = 200, kp = 256, blocks = 2;
  Random random(9);
  ChosenCodes chosen;
  for (int i = 0; i < rows * columns; ++i) {
    chosen.codes.push_back(static_cast<std::int16_t>(random.below(4)));
  }
  for (int i = 0; i < rows * blocks * 8; ++i) {
    chosen.scales.push_back(f16_to_f32(f32_to_f16(random.normal())) * 0x1p-6f);
  }
  chosen.scale_mul = 0x1p-6f;
  for (int k = 0; k < columns; ++k) chosen.zeros.push_back(random.below(5) == 0 ? 1 : 0);
  const QuantScheme b1 = *parse_scheme("b1");
  const PackedWeight packed = pack_codes(chosen, rows, columns, b1, ActKind::none);
  std::vector<float> row(static_cast<std::size_t>(columns));
  for (int r = 0; r < rows; ++r) {
    unpack_row(packed.view(), r, row);
    for (int k = 0; k < columns; ++k) {
      const int code = naive_code(packed.codes, 2, kp, r, k);
      ASSERT_EQ(code, chosen.codes[static_cast<std::size_t>(r * columns + k)]);
      float numbers[8];
      for (int i = 0; i < 8; ++i) {
        const int at = ((r / 64 * blocks + k / 128) * 64 + r % 64) * 8 + i;
        numbers[i] = f16_to_f32(number_at<std::uint16_t>(packed.scales, at)) * 0x1p-6f;
        ASSERT_EQ(numbers[i],
                  chosen.scales[static_cast<std::size_t>((r * blocks + k / 128) * 8 + i)]);
      }
      const float first = (code & 1) != 0 ? 1.0f : -1.0f;
      const float second = (code & 2) != 0 ? 1.0f : -1.0f;
      const bool salient = (number_at<std::uint8_t>(packed.zeros, k / 8) >> (k % 8) & 1) != 0;
      ASSERT_EQ(salient, chosen.zeros[static_cast<std::size_t>(k)] != 0);
      float want = 0;
      if (salient) {
        want = (numbers[0] + first * numbers[1]) + (numbers[2] + second * numbers[3]);
      } else {
        const int part = (code & 2) != 0 ? 6 : 4;
        want = numbers[part] + first * numbers[part + 1];
      }
      ASSERT_EQ(row[static_cast<std::size_t>(k)], want) << r << ", " << k;
    }
  }
  EXPECT_THROW(scale_at(packed.view(), 0, 0), Error);
  chosen.codes[0] = 4;
  EXPECT_THROW(pack_codes(chosen, rows, columns, b1, ActKind::none), Error);
}

}  // namespace
}  // namespace leq
