// A slice of rows of a packed weight has the same numbers as the whole weight, in every scheme.
#include "tensor/weight_layout.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "base/random.h"
#include "case_names.h"
#include "tensor/pack.h"

namespace leq {
namespace {

constexpr std::int64_t kRows = 200, kColumns = 300;

std::vector<float> random_values(std::int64_t count) {
  Random random(11);
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(random.normal());
  return values;
}

std::vector<float> row_of(const WeightView& weight, std::int64_t row) {
  std::vector<float> out(static_cast<std::size_t>(weight.columns));
  unpack_columns(weight, row, 0, out);
  return out;
}

class WeightSlice : public ::testing::TestWithParam<const char*> {};

TEST_P(WeightSlice, HoldsTheNumbersOfItsRows) {
  const auto scheme = parse_scheme(GetParam());
  ASSERT_TRUE(scheme);
  const PackedWeight packed =
      pack_weight(random_values(kRows * kColumns), kRows, kColumns, *scheme, ActKind::none, "w");
  const WeightView whole = packed.view();
  for (const Slice rows : {Slice{0, 64}, Slice{64, 192}, Slice{128, 200}, Slice{0, 200}}) {
    const WeightView slice = slice_rows(whole, rows);
    ASSERT_EQ(slice.rows, rows.count());
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      EXPECT_EQ(row_of(slice, row), row_of(whole, rows.first + row)) << "row " << row;
    }
    // Takes a slice of a slice, too.
    if (rows.count() <= 64) continue;
    const WeightView inner = slice_rows(slice, {64, rows.count()});
    EXPECT_EQ(row_of(inner, 0), row_of(whole, rows.first + 64));
  }
}
INSTANTIATE_TEST_SUITE_P(Schemes, WeightSlice,
                         ::testing::Values("f32", "f16", "bf16", "int8", "int8-g128", "uint8",
                                           "uint8-g64", "int4", "int4-g64", "uint4-g32", "int3",
                                           "int3-g64", "uint3-g128", "int2-g64", "uint2-g64",
                                           "nf4"),
                         test::named_by_text);

// The test above does not compare sums of codes: a slice must have those of its rows packed alone.
TEST(WeightSlice, HasTheCodeSumsOfItsRows) {
  const std::vector<float> values = random_values(kRows * kColumns);
  for (const char* name : {"int8", "int8-g64"}) {
    for (const ActKind act : {ActKind::row, ActKind::g128, ActKind::g32}) {
      const PackedWeight packed =
          pack_weight(values, kRows, kColumns, *parse_scheme(name), act, "w");
      const std::vector<float> below(values.begin() + 128 * kColumns, values.end());
      const PackedWeight alone =
          pack_weight(below, kRows - 128, kColumns, *parse_scheme(name), act, "w");
      const WeightView slice = slice_rows(packed.view(), {128, kRows});
      EXPECT_EQ(std::memcmp(slice.sums, alone.view().sums, alone.sums.size()), 0) << name;
    }
  }
}

TEST(WeightSlice, RefusesRowsThatCutAPanel) {
  const PackedWeight packed =
      pack_weight(random_values(kRows * 128), kRows, 128, *parse_scheme("int8"), ActKind::row, "w");
  EXPECT_THROW(slice_rows(packed.view(), {32, 128}), Error);
  EXPECT_THROW(slice_rows(packed.view(), {64, 100}), Error);
  EXPECT_THROW(slice_rows(packed.view(), {64, 256}), Error);
  EXPECT_EQ(slice_rows(packed.view(), {100, 100}).rows, 0);
}

}  // namespace
}  // namespace leq
