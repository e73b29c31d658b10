// Compares plane sizes with values computed by hand; tests names of acts, schemes and types.
#include "tensor/weight_layout.h"

#include <gtest/gtest.h>
#include <tuple>

#include "all_schemes.h"
#include "base/error.h"
#include "errors.h"

namespace leq {
namespace {

PlaneBytes bytes_of(const char* scheme, ActKind act, std::int64_t rows, std::int64_t columns) {
  return plane_bytes(*parse_scheme(scheme), act, rows, columns);
}

TEST(PlaneBytes, FloatsAreNotPadded) {
  EXPECT_EQ(bytes_of("f32", ActKind::none, 3, 5).codes, 60u);
  EXPECT_EQ(bytes_of("f16", ActKind::none, 3, 5).codes, 30u);
  EXPECT_EQ(bytes_of("bf16", ActKind::row, 3, 5).codes, 30u);
  EXPECT_EQ(bytes_of("f32", ActKind::row, 3, 5).scales, 0u);
  EXPECT_EQ(bytes_of("f32", ActKind::row, 3, 5).sums, 0u);
}

TEST(PlaneBytes, RowScaledInt8) {
  // 65 x 129 is padded to 128 x 256.
  const PlaneBytes row = bytes_of("int8", ActKind::row, 65, 129);
  EXPECT_EQ(row.codes, 128u * 256);
  EXPECT_EQ(row.scales, 128u * 4);
  EXPECT_EQ(row.zeros, 0u);
  EXPECT_EQ(row.sums, 128u * 4);
  EXPECT_EQ(bytes_of("int8", ActKind::g128, 65, 129).sums, 128u * 2 * 2);
  EXPECT_EQ(bytes_of("int8", ActKind::g32, 65, 129).sums, 128u * 8 * 2);
  EXPECT_EQ(bytes_of("int8", ActKind::none, 65, 129).sums, 0u);
  EXPECT_EQ(bytes_of("int8-tensor", ActKind::row, 65, 129).sums, 128u * 4);
}

TEST(PlaneBytes, GroupedCodes) {
  const PlaneBytes eight = bytes_of("int8-g32", ActKind::row, 64, 200);  // 64 x 256, 8 groups
  EXPECT_EQ(eight.codes, 64u * 256);
  EXPECT_EQ(eight.scales, 64u * 8 * 2);
  EXPECT_EQ(eight.sums, 64u * 8 * 2);
  EXPECT_EQ(bytes_of("int8-g128", ActKind::g128, 64, 200).sums, 64u * 2 * 2);
  for (const ActKind one_scale : {ActKind::tensor, ActKind::online}) {
    EXPECT_EQ(bytes_of("int8", one_scale, 65, 129).sums, 128u * 4);
    EXPECT_EQ(bytes_of("int8-g32", one_scale, 64, 200).sums, 64u * 8 * 2);
  }
  EXPECT_EQ(bytes_of("int8-g64", ActKind::g128, 64, 200).sums, 64u * 4 * 2);
  const PlaneBytes four = bytes_of("int4-g128", ActKind::row, 64, 200);
  EXPECT_EQ(four.codes, 64u * 256 / 2);
  EXPECT_EQ(four.scales, 64u * 2 * 2);
  EXPECT_EQ(four.sums, 0u);
  const PlaneBytes unsigned_four = bytes_of("uint4-g64", ActKind::row, 64, 200);
  EXPECT_EQ(unsigned_four.scales, 64u * 4 * 2);
  EXPECT_EQ(unsigned_four.zeros, 64u * 4);
  EXPECT_EQ(bytes_of("int3-g128", ActKind::row, 64, 128).codes, 64u * 128 * 3 / 8);
}

TEST(PlaneBytes, Nf4AndB1) {
  // 65 x 129 is padded to 128 x 256: 2 panels, 4 blocks of 64 columns, 1 part of 256 columns.
  const PlaneBytes nf4 = bytes_of("nf4", ActKind::none, 65, 129);
  EXPECT_EQ(nf4.codes, 128u * 256 / 2);
  EXPECT_EQ(nf4.zeros, 128u * 4);
  EXPECT_EQ(nf4.scales, 2u * 1 * 2 * 4);
  EXPECT_EQ(bytes_of("nf4", ActKind::none, 64, 257).scales, 1u * 2 * 2 * 4);
  const PlaneBytes b1 = bytes_of("b1", ActKind::none, 65, 129);
  EXPECT_EQ(b1.codes, 128u * 256 * 2 / 8);
  EXPECT_EQ(b1.scales, 128u * 2 * 8 * 2);
  EXPECT_EQ(b1.zeros, 256u / 8);
  EXPECT_EQ(b1.sums, 0u);
}

TEST(SumGroup, IsTheFinerOfWeightAndActivation) {
  const auto group = [](const char* scheme, ActKind act, std::int64_t columns) {
    return sum_group(*parse_scheme(scheme), act, columns);
  };
  EXPECT_EQ(group("int8", ActKind::row, 300), 384);
  EXPECT_EQ(group("int8", ActKind::g128, 300), 128);
  EXPECT_EQ(group("int8-g32", ActKind::g128, 300), 32);
  EXPECT_EQ(group("int8", ActKind::g32, 300), 32);
  EXPECT_EQ(group("int8-g128", ActKind::row, 300), 128);
  EXPECT_EQ(group("int4-g64", ActKind::row, 300), 64);
  EXPECT_EQ(group("int8", ActKind::tensor, 300), 384);
  EXPECT_EQ(group("int8-g128", ActKind::online, 300), 128);
}

TEST(ActNames, ReadBackAsTheyAreWritten) {
  for (const ActKind act : {ActKind::none, ActKind::row, ActKind::g128, ActKind::g32,
                            ActKind::tensor, ActKind::online}) {
    EXPECT_EQ(parse_act(act_name(act)), act);
  }
  EXPECT_EQ(act_name(ActKind::online), "online");
  EXPECT_EQ(parse_act("Tensor"), std::nullopt);
  EXPECT_EQ(parse_act(""), std::nullopt);
}

TEST(QuantScheme, NamesReadBackAsTheyAreWritten) {
  for (const char* name : {"f32", "f16", "bf16", "int8", "int8-tensor", "int8-g32", "int8-g64",
                           "int8-g128", "int4-g32", "int4-g64", "int4-g128", "int3-g128",
                           "int2-g32", "uint8", "uint4-g128", "nf4", "b1"}) {
    const auto scheme = parse_scheme(name);
    ASSERT_TRUE(scheme.has_value()) << name;
    EXPECT_EQ(scheme_name(*scheme), name);
  }
  EXPECT_EQ(scheme_name(*parse_scheme("int4")), "int4-g128");  // the default group for few bits
  EXPECT_EQ(scheme_name(*parse_scheme("uint2")), "uint2-g128");
}

TEST(QuantScheme, RefusesWhatTheGrammarDoesNotHave) {
  for (const char* name :
       {"", "int", "uint", "int5", "int16", "int8-", "int8-g", "int8-g16", "int8-g1280",
        "int4-tensor", "uint8-tensor", "f64", "F32", "int8 ", "q4_0", "int-8", "b11", "nf44"}) {
    EXPECT_EQ(parse_scheme(name), std::nullopt) << name;
  }
}

TEST(QuantScheme, ErrorsNameTheTypeAndWhatIsOffered) {
  const auto message = [](const char* name) -> std::string {
    return test::error_of([&] { require_scheme(name, "--type"); });
  };
  EXPECT_EQ(message("int8"), "");
  EXPECT_EQ(message("int4-g32"), "");
  for (const char* name : {"q4_0", "int5-g128", "uint8-tensor", "nf5"}) {
    EXPECT_NE(message(name).find(name), std::string::npos) << name;
    EXPECT_NE(message(name).find("(int|uint)(8|4|3|2)"), std::string::npos) << name;
  }
}

TEST(QuantScheme, AllSchemesReadBackAsTheyAreWritten) {
  const auto schemes = test::all_schemes();
  EXPECT_EQ(schemes.size(), 38u);
  for (const QuantScheme& scheme : schemes) EXPECT_EQ(parse_scheme(scheme_name(scheme)), scheme);
}

TEST(DType, NamesAndSizes) {
  const std::tuple<DType, const char*, std::size_t> types[] = {
      {DType::f32, "f32", 4}, {DType::f16, "f16", 2}, {DType::bf16, "bf16", 2},
      {DType::i8, "i8", 1},   {DType::u8, "u8", 1},   {DType::i16, "i16", 2},
      {DType::i32, "i32", 4}};
  for (const auto& [dtype, name, bytes] : types) {
    EXPECT_EQ(dtype_name(dtype), name);
    EXPECT_EQ(dtype_bytes(dtype), bytes);
  }
}

}  // namespace
}  // namespace leq
