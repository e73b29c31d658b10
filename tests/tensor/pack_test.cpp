// Compares packing byte by byte with an independent implementation in double.
#include "tensor/pack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/half.h"
#include "base/random.h"
#include "errors.h"
#include "tensor/naive_weight.h"

namespace leq {
namespace {

std::vector<float> random_values(int rows, int columns, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  Random random(seed);
  for (float& value : values) value = random.normal() * 0.05f;
  return values;
}

std::string scheme_text(const test::NaiveCase& c) {
  std::string name = (c.ranged ? "uint" : "int") + std::to_string(c.bits);
  if (c.group < 0) name += "-tensor";
  if (c.group > 0) name += "-g" + std::to_string(c.group);
  return name;
}

std::vector<std::uint8_t> bytes_of(const std::vector<std::byte>& plane) {
  std::vector<std::uint8_t> bytes;
  for (const std::byte byte : plane) bytes.push_back(std::to_integer<std::uint8_t>(byte));
  return bytes;
}

void expect_same(const test::NaiveCase& c, const std::vector<float>& values) {
  SCOPED_TRACE(scheme_text(c) + " act " + c.act + " " + std::to_string(c.rows) + " x " +
               std::to_string(c.columns));
  const auto expected = test::naive_pack(c, values);
  const auto scheme = parse_scheme(scheme_text(c));
  const auto act = parse_act(c.act);
  ASSERT_TRUE(scheme && act);
  const PackedWeight packed = pack_weight(values, c.rows, c.columns, *scheme, *act, "w");
  EXPECT_EQ(static_cast<double>(packed.scale_mul), expected.scale_mul);
  EXPECT_EQ(bytes_of(packed.codes), expected.codes);
  EXPECT_EQ(bytes_of(packed.scales), expected.scales);
  EXPECT_EQ(bytes_of(packed.sums), expected.sums);
  EXPECT_EQ(bytes_of(packed.zeros), expected.zeros);
  const PlaneBytes sizes = plane_bytes(*scheme, *act, c.rows, c.columns);
  EXPECT_EQ(sizes.codes, packed.codes.size());
  EXPECT_EQ(sizes.scales, packed.scales.size());
  EXPECT_EQ(sizes.zeros, packed.zeros.size());
  EXPECT_EQ(sizes.sums, packed.sums.size());
  // Compares the values that a reader of the packed weight gets.
  const WeightView view = packed.view();
  std::vector<float> row(static_cast<std::size_t>(c.columns));
  ChosenCodes chosen;
  chosen.scale_mul = packed.scale_mul;
  for (int r = 0; r < c.rows; ++r) {
    unpack_row(view, r, row);
    for (int k = 0; k < c.columns; ++k) {
      const auto i = static_cast<std::size_t>(r * c.columns + k);
      ASSERT_EQ(code_at(view, r, k), expected.values[i]) << r << ", " << k;
      ASSERT_EQ(static_cast<double>(scale_at(view, r, k)), expected.scale_of[i]) << r << ", " << k;
      ASSERT_EQ(zero_at(view, r, k), expected.zero_of[i]) << r << ", " << k;
      ASSERT_EQ(
          row[static_cast<std::size_t>(k)],
          static_cast<float>((expected.values[i] - expected.zero_of[i]) * expected.scale_of[i]));
      chosen.codes.push_back(static_cast<std::int16_t>(expected.values[i]));
      if (k % (c.group > 0 ? c.group : c.columns) != 0) continue;
      chosen.scales.push_back(static_cast<float>(expected.scale_of[i]));
      if (c.ranged) chosen.zeros.push_back(static_cast<std::uint8_t>(expected.zero_of[i]));
    }
  }
  const PackedWeight again = pack_codes(chosen, c.rows, c.columns, *scheme, *act);
  EXPECT_EQ(again.scale_mul, packed.scale_mul);
  EXPECT_EQ(again.codes, packed.codes);
  EXPECT_EQ(again.zeros, packed.zeros);
  EXPECT_EQ(again.scales, packed.scales);
  EXPECT_EQ(again.sums, packed.sums);
  EXPECT_EQ(again.scheme, packed.scheme);
}

std::vector<test::NaiveCase> integer_cases(int rows, int columns) {
  std::vector<test::NaiveCase> cases;
  for (const char* act : {"none", "row", "g128", "g32"}) {
    for (const int group : {0, -1, 32, 64, 128})
      cases.push_back({8, group, act, rows, columns, false});
    cases.push_back({8, 0, act, rows, columns, true});
    for (const int group : {32, 64, 128}) {
      for (const int bits : {4, 3, 2}) cases.push_back({bits, group, act, rows, columns, false});
      for (const int bits : {8, 4, 3, 2}) cases.push_back({bits, group, act, rows, columns, true});
    }
  }
  return cases;
}

TEST(Pack, EveryPlaneEqualsTheNaiveOneForEveryShape) {
  const std::vector<std::pair<int, int>> shapes = {{1, 1},   {3, 5},    {63, 31},  {64, 32},
                                                   {65, 33}, {2, 127},  {64, 128}, {70, 129},
                                                   {1, 300}, {130, 257}};
  std::uint64_t seed = 1;
  for (const auto& [rows, columns] : shapes) {
    const auto values = random_values(rows, columns, seed++);
    for (const auto& c : integer_cases(rows, columns)) expect_same(c, values);
  }
}

TEST(Pack, ZeroTinyAndSmallGroupsGetScaleOneAndCodesOfValueZero) {
  auto values = random_values(4, 256, 7);
  for (std::size_t k = 0; k < 256; ++k) {
    if (k < 32) values[k] = 0;                     // a group of zeros
    if (k >= 64 && k < 128) values[k] *= 1e-12f;   // below 1e-12
    if (k >= 128 && k < 160) values[k] *= 1e-14f;  // f16 scale would be 0 next to the others
    if (k >= 160) values[k] *= 1e-5f;              // a subnormal f16 scale
    values[256 + k] = 0;                           // a row of zeros
  }
  for (const auto& c : integer_cases(4, 256)) expect_same(c, values);
  for (float& value : values) value *= 1e-9f;  // scale_mul far from 1
  for (const auto& c : integer_cases(4, 256)) expect_same(c, values);
  for (float& value : values) value = 0;
  for (const auto& c : integer_cases(4, 256)) expect_same(c, values);
}

TEST(Pack, GroupsWithScalesTooSmallForF16AreDropped) {
  std::vector<float> values(128, 1.0f);
  for (std::size_t k = 32; k < 64; ++k) values[k] = 1.1e-12f;
  const PackedWeight packed =
      pack_weight(values, 1, 128, *parse_scheme("int4-g32"), ActKind::row, "w");
  EXPECT_EQ(code_at(packed.view(), 0, 40), 0);
  EXPECT_EQ(scale_at(packed.view(), 0, 40), packed.scale_mul);
  EXPECT_EQ(code_at(packed.view(), 0, 0), -8);
  EXPECT_EQ(scale_at(packed.view(), 0, 0), -0.125f);
  for (const auto& c : integer_cases(1, 128)) expect_same(c, values);
}

TEST(Pack, TheFirstOfTheLargestDecidesTheSignOfFourBitScales) {
  std::vector<float> values(128, 0.25f);
  values[3] = -2.0f;
  values[5] = 2.0f;
  PackedWeight packed = pack_weight(values, 1, 128, *parse_scheme("int4-g128"), ActKind::row, "w");
  EXPECT_EQ(scale_at(packed.view(), 0, 0), 0.25f);
  EXPECT_EQ(code_at(packed.view(), 0, 3), -8);
  EXPECT_EQ(code_at(packed.view(), 0, 5), 7);
  std::swap(values[3], values[5]);
  packed = pack_weight(values, 1, 128, *parse_scheme("int4-g128"), ActKind::row, "w");
  EXPECT_EQ(scale_at(packed.view(), 0, 0), -0.25f);
  EXPECT_EQ(code_at(packed.view(), 0, 3), -8);
  EXPECT_EQ(code_at(packed.view(), 0, 5), 7);
}

TEST(Pack, UnsignedCodesHoldZeroExactlyAlsoInOneSidedGroups) {
  std::vector<float> values(128);
  for (std::size_t k = 0; k < 128; ++k) {
    values[k] = 0.5f + 0.01f * static_cast<float>(k % 32);  // [0.5, 0.81]
    if (k >= 32) values[k] = -values[k];
    if (k >= 64) values[k] = 3.0f;  // all equal
    if (k >= 96) values[k] = -3.0f;
  }
  for (const char* name : {"uint8-g32", "uint4-g32", "uint3-g32", "uint2-g32"}) {
    const QuantScheme scheme = *parse_scheme(name);
    const int most = (1 << scheme.bits) - 1;
    const PackedWeight packed = pack_weight(values, 1, 128, scheme, ActKind::row, "w");
    const WeightView view = packed.view();
    for (const std::int64_t group : {0, 1, 2, 3}) {
      const bool negative = group % 2 == 1;
      EXPECT_EQ(zero_at(view, 0, group * 32), negative ? most : 0) << name;
      for (std::int64_t k = group * 32; k < group * 32 + 32; ++k) {
        // The error is half a step plus the rounding of the scale to f16 times the number of steps.
        const double step = static_cast<double>(scale_at(view, 0, k));
        const double value = (code_at(view, 0, k) - zero_at(view, 0, k)) * step;
        EXPECT_NEAR(value, static_cast<double>(values[static_cast<std::size_t>(k)]),
                    step * (0.5 + most * 0x1p-11))
            << name << " column " << k;
      }
    }
  }
  for (const auto& c : integer_cases(1, 128)) expect_same(c, values);
}

TEST(Pack, RefusesRangesThatF32CannotHold) {
  const std::vector<float> values = {3e38f, -3e38f};
  EXPECT_NO_THROW(pack_weight(values, 1, 2, *parse_scheme("int8"), ActKind::row, "w"));
  EXPECT_THROW(pack_weight(values, 1, 2, *parse_scheme("uint8"), ActKind::row, "w"), Error);
}

TEST(Pack, HalvesRoundToEven) {
  // The largest value is 127, so the scale is exactly 1 and values x.5 are ties.
  const std::vector<float> values = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f};
  const PackedWeight packed = pack_weight(values, 1, 8, *parse_scheme("int8"), ActKind::row, "w");
  const std::vector<int> expected = {127, 0, 2, 2, 0, -2, -2, 126};
  for (int k = 0; k < 8; ++k) {
    EXPECT_EQ(code_at(packed.view(), 0, k), expected[static_cast<std::size_t>(k)]);
  }
}

TEST(Pack, HalvesOfUnsignedCodesRoundToEvenBeforeTheZeroPointIsAdded) {
  // The range is -1.5 to 6: at 4 bits the scale is exactly 0.5 and the zero point 3.
  const std::vector<float> values = {6.0f, -1.5f, 0.25f, 0.75f, 1.25f, -0.25f, -0.75f, -1.25f};
  const PackedWeight packed =
      pack_weight(values, 1, 8, *parse_scheme("uint4-g32"), ActKind::row, "w");
  EXPECT_EQ(scale_at(packed.view(), 0, 0), 0.5f);
  EXPECT_EQ(zero_at(packed.view(), 0, 0), 3);
  const std::vector<int> expected = {15, 0, 3, 5, 5, 3, 1, 1};
  for (int k = 0; k < 8; ++k) {
    EXPECT_EQ(code_at(packed.view(), 0, k), expected[static_cast<std::size_t>(k)]) << k;
  }
}

TEST(Pack, TensorScalingIsStoredAsRowsWithEqualScales) {
  const auto values = random_values(5, 40, 3);
  const PackedWeight packed =
      pack_weight(values, 5, 40, *parse_scheme("int8-tensor"), ActKind::row, "w");
  EXPECT_EQ(scheme_name(packed.scheme), "int8");
  for (int r = 1; r < 5; ++r) {
    EXPECT_EQ(scale_at(packed.view(), r, 0), scale_at(packed.view(), 0, 0));
  }
}

TEST(Pack, FloatsLieRowMajorAndAreNarrowedToNearestEven) {
  const auto values = random_values(3, 7, 9);
  for (const char* name : {"f32", "f16", "bf16"}) {
    const PackedWeight packed = pack_weight(values, 3, 7, *parse_scheme(name), ActKind::none, "w");
    EXPECT_TRUE(packed.scales.empty());
    EXPECT_TRUE(packed.sums.empty());
    ASSERT_EQ(packed.codes.size(), 21u * (std::string(name) == "f32" ? 4 : 2));
    std::vector<float> row(7);
    for (int r = 0; r < 3; ++r) {
      unpack_row(packed.view(), r, row);
      for (int k = 0; k < 7; ++k) {
        const float x = values[static_cast<std::size_t>(r * 7 + k)];
        double expected = static_cast<double>(x);
        if (std::string(name) == "f16") expected = test::nearest_f16(expected);
        if (std::string(name) == "bf16") {
          int exponent = 0;
          std::frexp(x, &exponent);
          expected = std::ldexp(std::nearbyint(std::ldexp(expected, 8 - exponent)), exponent - 8);
        }
        EXPECT_EQ(static_cast<double>(row[static_cast<std::size_t>(k)]), expected);
      }
    }
  }
}

std::string error_of(const std::vector<float>& values, int columns, const char* scheme) {
  return test::error_of([&] {
    pack_weight(values, static_cast<std::int64_t>(values.size()) / columns, columns,
                *parse_scheme(scheme), ActKind::row, "layers.3.down");
  });
}

TEST(Pack, RefusesNumbersThatAreNotFiniteByRowAndColumn) {
  for (const char* scheme : {"f32", "f16", "bf16", "int8", "int8-tensor", "int8-g128", "int4-g32",
                             "int3-g64", "uint8", "uint2-g128", "nf4"}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      for (const std::size_t at : {0u, 77u, 299u}) {
        auto values = random_values(3, 100, 11);
        values[at] = bad;
        const std::string message = error_of(values, 100, scheme);
        const std::string place =
            "at row " + std::to_string(at / 100) + ", column " + std::to_string(at % 100) + " ";
        EXPECT_NE(message.find("layers.3.down"), std::string::npos) << scheme << message;
        EXPECT_NE(message.find(place), std::string::npos) << scheme << message;
        EXPECT_NE(message.find("not finite"), std::string::npos) << scheme << message;
      }
    }
  }
}

TEST(Pack, RefusesWhatHalvesCannotHoldAndSaysWhatCan) {
  auto values = random_values(2, 10, 13);
  values[13] = 65504.0f;
  EXPECT_EQ(error_of(values, 10, "f16"), "");
  values[13] = -65505.0f;
  const std::string message = error_of(values, 10, "f16");
  EXPECT_NE(message.find("row 1, column 3"), std::string::npos) << message;
  EXPECT_NE(message.find("bf16 or f32"), std::string::npos) << message;
  EXPECT_EQ(error_of(values, 10, "bf16"), "");
  values[13] = std::numeric_limits<float>::max();  // rounds to infinity in bf16
  EXPECT_NE(error_of(values, 10, "bf16").find("f32"), std::string::npos);
}

TEST(Pack, RefusesCountsThatDoNotFitTheShape) {
  const std::vector<float> values(12);
  EXPECT_THROW(pack_weight(values, 3, 5, *parse_scheme("f32"), ActKind::none, "w"), Error);
  EXPECT_THROW(pack_weight(values, 0, 5, *parse_scheme("f32"), ActKind::none, "w"), Error);
  EXPECT_THROW(pack_weight(values, 3, 4, *parse_scheme("b1"), ActKind::none, "w"), Error);
  ChosenCodes chosen;
  chosen.codes.resize(12);
  chosen.scales = {1.0f, 1.0f, 1.0f};
  const QuantScheme int8 = *parse_scheme("int8");
  const QuantScheme uint2 = *parse_scheme("uint2-g32");
  EXPECT_NO_THROW(pack_codes(chosen, 3, 4, int8, ActKind::row));
  EXPECT_THROW(pack_codes(chosen, 4, 4, int8, ActKind::row), Error);
  EXPECT_THROW(pack_codes(chosen, 4, 3, int8, ActKind::row), Error);
  EXPECT_THROW(pack_codes(chosen, 3, 4, *parse_scheme("f32"), ActKind::none), Error);
  EXPECT_THROW(pack_codes(chosen, 3, 4, uint2, ActKind::row), Error);  // without zero points
  chosen.zeros = {0, 3, 1};
  EXPECT_NO_THROW(pack_codes(chosen, 3, 4, uint2, ActKind::row));
  EXPECT_THROW(pack_codes(chosen, 3, 4, int8, ActKind::row), Error);
  chosen.zeros[1] = 4;
  EXPECT_THROW(pack_codes(chosen, 3, 4, uint2, ActKind::row), Error);
  chosen.zeros[1] = 3;
  chosen.codes[5] = 4;
  EXPECT_THROW(pack_codes(chosen, 3, 4, uint2, ActKind::row), Error);
  chosen.zeros.clear();
  chosen.codes[5] = -128;
  EXPECT_THROW(pack_codes(chosen, 3, 4, int8, ActKind::row), Error);
}

TEST(RoundGroupScales, BringsTheLargestIntoTheUpperHalfOfF16) {
  std::vector<float> scales = {0.75f, -3.0f, 1e-3f, 5.0f, 2e-14f};
  const std::vector<float> absmax = {6.0f, 24.0f, 8e-3f, 1e-13f, 1.6e-13f};
  // 3 = 0.75 * 2^2, so scale_mul is 2^-13; the fourth and fifth groups are below 1e-12.
  EXPECT_EQ(round_group_scales(scales, absmax), 0x1p-13f);
  EXPECT_EQ(scales[0], 0.75f);
  EXPECT_EQ(scales[1], -3.0f);
  EXPECT_EQ(static_cast<double>(scales[2]),
            test::nearest_f16(static_cast<double>(1e-3f) * 0x1p13) * 0x1p-13);
  EXPECT_EQ(scales[3], 0x1p-13f);
  EXPECT_EQ(scales[4], 0x1p-13f);
  std::vector<float> none = {5.0f};
  EXPECT_EQ(round_group_scales(none, std::vector<float>{0.0f}), 1.0f);
  EXPECT_EQ(none[0], 1.0f);
}

}  // namespace
}  // namespace leq
