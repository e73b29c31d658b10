// Compares blocks of every type with gguf-py (gguf_vectors.py), and codes with the values.
#include "format/gguf_types.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "errors.h"
#include "format/gguf_vectors.h"

namespace leq {
namespace {

// Creates the bytes of random_bytes in gguf_vectors.py.
std::vector<std::byte> random_blocks(std::size_t count) {
  std::vector<std::byte> out;
  std::uint64_t x = 1;
  for (std::size_t i = 0; i < count; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    out.push_back(static_cast<std::byte>(x >> 56));
  }
  return out;
}

const GgufType& named(std::string_view name) {
  const auto types = gguf_types();
  return *std::ranges::find(types, name, &GgufType::name);
}

std::vector<std::byte> blocks_of(const test::GgufVector& vector) {
  const auto size = static_cast<std::size_t>(named(vector.type).bytes);
  std::vector<std::byte> bytes = random_blocks(test::kGgufVectorBlocks * size);
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    for (const int half : vector.halves)
      bytes[at + static_cast<std::size_t>(half) + 1] &= std::byte{0xbf};
    if (vector.type == "MXFP4") {
      bytes[at] = static_cast<std::byte>(100 + std::to_integer<int>(bytes[at]) % 64);
    }
  }
  return bytes;
}

std::uint64_t fnv(const std::vector<float>& values) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const float value : values) {
    const auto bits = std::bit_cast<std::uint32_t>(value + 0.0f);
    for (int i = 0; i < 4; ++i) hash = (hash ^ (bits >> (8 * i) & 255u)) * 0x100000001b3u;
  }
  return hash;
}

TEST(GgufTypes, ValuesAreThoseOfGgufPyBitForBit) {
  EXPECT_EQ(test::kGgufVectors.size(), 23u);
  for (const test::GgufVector& vector : test::kGgufVectors) {
    SCOPED_TRACE(vector.type);
    const GgufType& type = named(vector.type);
    const std::vector<std::byte> bytes = blocks_of(vector);
    std::vector<float> values(static_cast<std::size_t>(test::kGgufVectorBlocks * type.elements));
    for (int i = 0; i < test::kGgufVectorBlocks; ++i) {
      type.decode(bytes.data() + i * type.bytes, values.data() + i * type.elements);
    }
    EXPECT_EQ(values.front(), vector.first);
    EXPECT_EQ(values.back(), vector.last);
    EXPECT_EQ(fnv(values), vector.hash);
  }
}

TEST(GgufTypes, EveryTypeWithBlocksHasVectors) {
  for (const GgufType& type : gguf_types()) {
    if (type.floats) continue;
    const bool there = std::ranges::any_of(test::kGgufVectors, [&](const test::GgufVector& vector) {
      return vector.type == type.name;
    });
    EXPECT_TRUE(there) << type.name;
    EXPECT_LE(type.elements, kMaxGgufBlock);
  }
}

// Scale times code must equal the value bit for bit, except for the sign of 0; blocks are only
// refused if they cannot be represented.
TEST(GgufTypes, CodesAreTheValues) {
  for (const test::GgufVector& vector : test::kGgufVectors) {
    SCOPED_TRACE(vector.type);
    const GgufType& type = named(vector.type);
    if (type.codes == nullptr) continue;
    const std::vector<std::byte> bytes = blocks_of(vector);
    int held = 0;
    for (int i = 0; i < test::kGgufVectorBlocks; ++i) {
      const std::byte* block = bytes.data() + i * type.bytes;
      std::array<float, kMaxGgufBlock> values{};
      std::array<std::int16_t, kMaxGgufBlock> codes{};
      std::array<float, kMaxGgufBlock / kGgufGroup> scales{};
      type.decode(block, values.data());
      if (!type.codes(block, codes.data(), scales.data())) continue;
      ++held;
      const QuantScheme kept = *kept_scheme(type);
      const int least = kept.kind == CodeKind::int_ ? -(1 << (kept.bits - 1)) : -128;
      const int most = -least - 1;
      const std::size_t group = type.name == "NVFP4" ? 16 : 32;
      for (std::size_t e = 0; e < static_cast<std::size_t>(type.elements); ++e) {
        EXPECT_LE(codes[e], most);
        EXPECT_GE(codes[e], least);
        EXPECT_EQ(static_cast<float>(codes[e]) * scales[e / group], values[e]);
      }
    }
    // The exponents are random, so two thirds of MXFP4's scales are in the range of f16.
    EXPECT_GT(held,
              type.name == "MXFP4" ? test::kGgufVectorBlocks / 4 : test::kGgufVectorBlocks - 1);
  }
}

TEST(GgufTypes, AScaleThatIsNotFiniteIsNotHeld) {
  std::array<std::byte, 34> block{};
  std::array<std::int16_t, 32> codes{};
  float scale = 0;
  EXPECT_TRUE(named("Q8_0").codes(block.data(), codes.data(), &scale));
  block[33] = std::byte{0x80};
  EXPECT_TRUE(named("Q8_0").codes(block.data(), codes.data(), &scale));
  EXPECT_EQ(codes[31], -128);
  block[1] = std::byte{0x7c};  // the scale is infinite
  EXPECT_FALSE(named("Q8_0").codes(block.data(), codes.data(), &scale));
}

TEST(GgufTypes, OthersAreRefusedByName) {
  const auto error_of = [](std::uint32_t id) -> std::string {
    return test::error_of([&] { require_gguf_type(id, "here"); });
  };
  for (const std::uint32_t id : {0u,  1u,  2u,  3u,  6u,  7u,  8u,  10u, 11u, 12u, 13u, 14u, 16u,
                                 17u, 18u, 19u, 20u, 21u, 22u, 23u, 29u, 30u, 34u, 35u, 39u, 40u}) {
    EXPECT_EQ(error_of(id), "") << id;
  }
  for (const std::uint32_t id : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u}) {
    EXPECT_NE(error_of(id).find("removed from the format"), std::string::npos) << error_of(id);
  }
  for (const std::uint32_t id : {133u, 137u, 144u, 158u, 202u, 230u}) {
    EXPECT_NE(error_of(id).find("ik_llama.cpp"), std::string::npos) << error_of(id);
  }
  for (const std::uint32_t id : {9u, 15u, 41u}) {
    EXPECT_NE(error_of(id).find("here: tensor type " + std::to_string(id)), std::string::npos);
  }
  EXPECT_NE(error_of(5000).find("not known"), std::string::npos);
}

}  // namespace
}  // namespace leq
