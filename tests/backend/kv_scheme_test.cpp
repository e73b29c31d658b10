// The table of KV schemes: its names, what other engines' names answer, and sizes that follow from
// a row, also from rows that no cache has yet.
#include "backend/kv_scheme.h"

#include <gtest/gtest.h>

#include <string>

#include "backend/kv_types.h"
#include "base/error.h"

namespace leq {
namespace {

std::string refusal(std::string_view name) {
  try {
    parse_kv_type(name, Setting{"key_type"});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(KvSchemes, AreFoundByName) {
  EXPECT_EQ(parse_kv_type("f32", Setting{"key_type"}), KvType::f32);
  EXPECT_EQ(parse_kv_type("f16", Setting{"key_type"}), KvType::f16);
  EXPECT_EQ(parse_kv_type("int8", Setting{"key_type"}), KvType::int8);
  EXPECT_EQ(kv_type_name(KvType::int8), "int8");
  EXPECT_EQ(kv_type_names(" | "), "f32 | f16 | int8");
}

TEST(KvSchemes, NamesOfOtherEnginesAreAnsweredWithTheClosest) {
  EXPECT_EQ(refusal("q8_0"), "key_type q8_0: expected f32, f16 or int8; the closest is int8");
  EXPECT_EQ(refusal("iq4_nl"), "key_type iq4_nl: expected f32, f16 or int8; the closest is int8");
  EXPECT_EQ(refusal("bf16"), "key_type bf16: expected f32, f16 or int8; the closest is f16");
  EXPECT_EQ(refusal("int9"), "key_type int9: expected f32, f16 or int8");
  EXPECT_EQ(refusal(""), "key_type : expected f32, f16 or int8");
}

TEST(KvSchemes, SizesFollowFromTheRow) {
  const KvScheme& int8 = kv_scheme(KvType::int8);
  EXPECT_EQ(kv_number_bytes(kv_scheme(KvType::f16), 22), 44u);
  EXPECT_EQ(kv_scale_count(kv_scheme(KvType::f16), KvPart::keys, 22, 64), 0u);
  EXPECT_EQ(kv_number_bytes(int8, 22), 22u);
  EXPECT_EQ(kv_scale_count(int8, KvPart::values, 22, 65), 65u);
  // Keys scaled by channel and 32 positions, values by token and 64 channels.
  KvScheme four = {.name = "four", .bits = 4};
  four.keys = KvAlong::channel;
  four.values = KvAlong::token;
  four.block = 32;
  four.group = 64;
  EXPECT_TRUE(four.coded());
  EXPECT_EQ(kv_number_bytes(four, 22), 11u);
  EXPECT_EQ(kv_number_bytes(four, 23), 12u);
  EXPECT_EQ(kv_scale_count(four, KvPart::keys, 128, 64), 2u * 128);
  EXPECT_EQ(kv_scale_count(four, KvPart::keys, 128, 65), 3u * 128);
  EXPECT_EQ(kv_scale_count(four, KvPart::values, 128, 64), 64u * 2);
  EXPECT_EQ(kv_scale_count(four, KvPart::values, 130, 64), 64u * 3);
}

}  // namespace
}  // namespace leq
