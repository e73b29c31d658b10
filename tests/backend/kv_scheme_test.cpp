// Tests the table of KV schemes: its names, the errors for names of other engines, and sizes
// derived from a row of the table, including rows that no cache uses yet.
#include "backend/kv_types.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "errors.h"

namespace leq {
namespace {

std::string refusal(std::string_view name) {
  return test::error_of([&] { parse_kv_type(name, Setting{"key_type"}); });
}

TEST(KvSchemes, AreFoundByName) {
  EXPECT_EQ(parse_kv_type("f32", Setting{"key_type"}), KvType::f32);
  EXPECT_EQ(parse_kv_type("f16", Setting{"key_type"}), KvType::f16);
  EXPECT_EQ(parse_kv_type("int8", Setting{"key_type"}), KvType::int8);
  EXPECT_EQ(kv_type_name(KvType::int8), "int8");
  EXPECT_EQ(kv_type_names(" | "), "f32 | f16 | int8 | int4 | simq8 | simq4 | simq2");
}

TEST(KvSchemes, NamesOfOtherEnginesAreAnsweredWithTheClosest) {
  const std::string expected = ": expected f32, f16, int8, int4, simq8, simq4 or simq2";
  EXPECT_EQ(refusal("q8_0"), "key_type q8_0" + expected + "; the closest is int8");
  EXPECT_EQ(refusal("q4_0"), "key_type q4_0" + expected + "; the closest is simq4");
  EXPECT_EQ(refusal("iq4_nl"), "key_type iq4_nl" + expected + "; the closest is simq4");
  EXPECT_EQ(refusal("bf16"), "key_type bf16" + expected + "; the closest is f16");
  EXPECT_EQ(refusal("int9"), "key_type int9" + expected);
  EXPECT_EQ(refusal(""), "key_type " + expected);
}

// Decision 6: query i reads key j as f16 if j < S or if j's block ends after i + 1 - R.
TEST(KvSchemes, LayersMayHaveTypesOfTheirOwn) {
  const auto parsed = [](std::string_view text) {
    return kv_layers_text(parse_kv_layers(text, Setting{"kv_layers"}));
  };
  EXPECT_EQ(parsed("0-1,27=f16"), "0-1=f16 27=f16");
  EXPECT_EQ(parsed("3=int8/simq4"), "3=int8/simq4");
  EXPECT_EQ(parsed("7=int4/int4"), "7=int4");
  for (const char* wrong :
       {"", "3", "=f16", "3=", "a=f16", "3-=f16", "-3=f16", "5-4=f16", "1,,2=f16", "3=q8_0",
        "3=f16/f16/f16", "3=f16/", "99999999999999999999=f16"}) {
    EXPECT_THROW((void)parse_kv_layers(wrong, Setting{"kv_layers"}), Error) << wrong;
  }
}

TEST(KvSchemes, ZonesFollowTheRuleOfPositions) {
  for (const KvResidual residual :
       {KvResidual{4, 32, 32}, KvResidual{0, 0, 32}, KvResidual{3, 7, 64}}) {
    for (std::int64_t i = 0; i < 300; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        const std::int64_t end = (j / residual.block + 1) * residual.block;
        const bool open = end > i + 1 - residual.recent;
        ASSERT_EQ(j >= residual.closed_for(i), open) << "query " << i << " key " << j;
      }
      // All codes that query i reads exist as soon as position i was appended.
      ASSERT_EQ(residual.quantized(i + 1), residual.closed_for(i));
    }
  }
  EXPECT_FALSE(kv_residual(KvType::f16, KvType::int8).copies());
  EXPECT_EQ(kv_residual(KvType::simq4, KvType::simq2), (KvResidual{4, 128, 32}));
  EXPECT_EQ(kv_residual(KvType::int8, KvType::simq4), (KvResidual{4, 32, 32}));
}

TEST(KvSchemes, SizesFollowFromTheRow) {
  const KvScheme& int8 = kv_scheme(KvType::int8);
  EXPECT_EQ(kv_number_bytes(kv_scheme(KvType::f16), 22), 44u);
  EXPECT_EQ(kv_scale_count(kv_scheme(KvType::f16), KvPart::keys, 22, 64), 0u);
  EXPECT_EQ(kv_number_bytes(int8, 22), 22u);
  EXPECT_EQ(kv_scale_count(int8, KvPart::values, 22, 65), 65u);
  // Here keys are scaled per channel and 32 positions, values per token and 64 channels.
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
