// mxfp4, iq4_nl and nvfp4: nearest numbers by search, and planes read back by a second decoder
// written from docs/leq-format.md.
#include "tensor/table_codes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/half.h"
#include "base/random.h"
#include "tensor/code_formats.h"
#include "tensor/pack.h"

namespace leq {
namespace {

struct Table {
  const char* name;
  std::vector<int> numbers;
};
const Table kTables[] = {
    {"mxfp4", {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}},
    {"nvfp4", {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}},
    {"iq4_nl", {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}}};

TEST(TableCodes, ChoosesTheNearestNumber) {
  Random random(3);
  for (const Table& table : kTables) {
    const CodeKind kind = parse_scheme(table.name)->kind;
    const auto distance = [&](double x, int number) { return std::fabs(x - number); };
    const auto nearest = [&](float x) {
      int best = table.numbers[0];
      for (const int number : table.numbers) {
        const double d = distance(x, number), least = distance(x, best);
        if (d < least || (d == least && number > best)) best = number;
      }
      return best;
    };
    const auto chosen = [&](float x) {
      return table.numbers[static_cast<std::size_t>(nearest_table_code(kind, x))];
    };
    for (int i = 0; i < 20000; ++i) {
      const float x = 280.0f * random.uniform() - 140.0f;
      ASSERT_EQ(chosen(x), nearest(x)) << x;
      ASSERT_EQ(chosen(x / 16), nearest(x / 16)) << x / 16;
    }
    for (int i = -300; i <= 300; ++i) {  // numbers and the middles between two
      const float x = static_cast<float>(i) / 2;
      EXPECT_EQ(chosen(x), nearest(x)) << x;
    }
  }
}

// E4M3 without sign.
float float8(int code) {
  return code < 8 ? std::ldexp(static_cast<float>(code), -9)
                  : std::ldexp(static_cast<float>(8 + code % 8), code / 8 - 10);
}

TEST(TableCodes, PlanesReadBackAsNumberTimesScale) {
  for (const Table& table : kTables) {
    for (const auto& [rows, columns] : {std::pair(1, 1), {3, 64}, {65, 65}, {70, 300}}) {
      Random random(5);
      std::vector<float> values(static_cast<std::size_t>(rows * columns));
      for (float& value : values) value = random.normal() * 0.05f;
      const PackedWeight packed =
          pack_weight(values, rows, columns, *parse_scheme(table.name), ActKind::g128, "w");
      EXPECT_EQ(packed.zeros.size() + packed.sums.size(), 0u);
      const bool bytes = std::string_view(table.name) == "nvfp4";
      EXPECT_TRUE(bytes || packed.scale_mul == 1.0f);
      const int group = bytes ? 16 : 32;
      const int kp = (columns + 127) / 128 * 128;
      std::vector<float> row(static_cast<std::size_t>(columns));
      double error = 0, size = 0;
      for (int r = 0; r < rows; ++r) {
        unpack_row(packed.view(), r, row);
        for (int k = 0; k < columns; ++k) {
          const int at = r / 64 * (64 * kp / 2) + k / 8 * 256 + r % 64 * 4 + k % 4;
          const int byte = std::to_integer<int>(packed.codes[static_cast<std::size_t>(at)]);
          const int code = k / 4 % 2 == 0 ? byte & 15 : byte >> 4;
          const int of_scale = r / 64 * (kp / group * 64) + k / group * 64 + r % 64;
          std::uint16_t half = 0;
          if (!bytes) std::memcpy(&half, packed.scales.data() + 2 * of_scale, 2);
          const float scale = bytes ? float8(std::to_integer<int>(
                                          packed.scales[static_cast<std::size_t>(of_scale)])) *
                                          (packed.scale_mul / 256)
                                    : f16_to_f32(half);
          const float number = static_cast<float>(table.numbers[static_cast<std::size_t>(code)]);
          const float found = row[static_cast<std::size_t>(k)];
          ASSERT_EQ(found, number * scale);
          const float wanted = values[static_cast<std::size_t>(r * columns + k)];
          error += std::pow(double{found} - double{wanted}, 2);
          size += std::pow(double{wanted}, 2);
        }
      }
      EXPECT_LT(error, 0.012 * size) << table.name;  // 4 bits for normal numbers: about 0.6 %
    }
  }
}

TEST(TableCodes, ValuesOnTheGridAreExact) {
  Random random(7);
  for (const Table& table : kTables) {
    std::vector<float> values;
    for (int i = 0; i < 64 * 32; ++i) {
      const std::size_t code = i % 32 < 16 ? static_cast<std::size_t>(i % 32) : random.below(16);
      values.push_back(static_cast<float>(table.numbers[code]) * 0x1p-9f);
    }
    const PackedWeight packed =
        pack_weight(values, 64, 32, *parse_scheme(table.name), ActKind::none, "w");
    std::vector<float> row(32);
    for (int r = 0; r < 64; ++r) {
      unpack_row(packed.view(), r, row);
      for (int k = 0; k < 32; ++k) {
        EXPECT_EQ(row[static_cast<std::size_t>(k)], values[static_cast<std::size_t>(r * 32 + k)]);
      }
    }
  }
}

TEST(TableCodes, SmallGroupsAreZero) {
  for (const Table& table : kTables) {
    const std::vector<float> values(64, 1e-13f);
    const auto packed = pack_weight(values, 1, 64, *parse_scheme(table.name), ActKind::none, "w");
    std::vector<float> row(64, 1.0f);
    unpack_row(packed.view(), 0, row);
    EXPECT_EQ(row, std::vector<float>(64, 0.0f));
  }
}

}  // namespace
}  // namespace leq
