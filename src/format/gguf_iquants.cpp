#include "format/gguf_iquants.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/half.h"
#include "format/gguf_grids.h"

namespace leq {
namespace {

template <class T>
T unsigned_at(const std::byte* bytes, int at) {
  T number = 0;
  std::memcpy(&number, bytes + at, sizeof number);
  return number;
}
unsigned u8_at(const std::byte* bytes, int at) { return std::to_integer<unsigned>(bytes[at]); }
float f16_at(const std::byte* bytes, int at) {
  return f16_to_f32(unsigned_at<std::uint16_t>(bytes, at));
}
unsigned four_bits(const std::byte* bytes, int e) {
  return u8_at(bytes, e / 2) >> (4 * (e % 2)) & 15;
}

// The patterns of a grid (gguf_grids.h) as levels: kSize numbers each.
template <int kSize>
using Grid = std::vector<std::array<float, kSize>>;

template <int kSize, std::size_t kLevels>
Grid<kSize> grid_of(std::string_view text, const std::array<float, kLevels>& levels) {
  Grid<kSize> grid;
  for (std::size_t pattern = 0; pattern < 6 * text.size(); ++pattern) {
    if (((text[pattern / 6] - '#') >> (pattern % 6) & 1) == 0) continue;
    std::size_t digits = pattern;
    auto& numbers = grid.emplace_back();
    for (float& number : numbers) {
      number = levels[digits % kLevels];
      digits /= kLevels;
    }
  }
  return grid;
}

constexpr std::array<float, 3> kIq2Levels = {8, 25, 43};
constexpr std::array<float, 8> kIq3XxsLevels = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr std::array<float, 8> kIq3SLevels = {1, 3, 5, 7, 9, 11, 13, 15};

const Grid<8>& iq1_grid() {
  static const Grid<8> kGrid = grid_of<8>(kIq1SGrid, std::array<float, 3>{-1, 0, 1});
  return kGrid;
}

// The signs of eight numbers of which seven bits are stored: the number of minus signs is even.
unsigned even_signs(unsigned seven) {
  return seven | static_cast<unsigned>(std::popcount(seven) & 1) << 7;
}

// out = scale * level, negated where the bit of `signs` is set.
template <std::size_t kSize>
void put_signed(const std::array<float, kSize>& levels, float scale, unsigned signs, float* out) {
  for (std::size_t i = 0; i < kSize; ++i) {
    out[i] = scale * ((signs >> i & 1) != 0 ? -levels[i] : levels[i]);
  }
}

// out = scale * (level + delta)
void put_shifted(unsigned pattern, float scale, bool down, float* out) {
  const float delta = down ? -0.125f : 0.125f;
  for (const float level : iq1_grid()[pattern]) *out++ = scale * (level + delta);
}

// The scales of IQ2 and IQ3_XXS: d * (1/2 + s) times a power of two; exact in f32, as all others.
float half_steps(float d, unsigned s, float power) {
  return d * (0.5f + static_cast<float>(s)) * power;
}
// 2 s + 1
float odd_steps(float d, unsigned s) { return d * static_cast<float>(2 * s + 1); }

}  // namespace

// 32 elements: four patterns of 8 bits, then four times seven signs and a scale of four bits.
void decode_iq2_xxs(const std::byte* block, float* out) {
  static const Grid<8> kGrid = grid_of<8>(kIq2XxsGrid, kIq2Levels);
  const float d = f16_at(block, 0);
  for (int g = 0; g < 32; ++g, out += 8) {
    const auto word = unsigned_at<std::uint32_t>(block, 2 + g / 4 * 8 + 4);
    const unsigned pattern = u8_at(block, 2 + g / 4 * 8 + g % 4);
    const unsigned signs = even_signs(word >> (7 * (g % 4)) & 127);
    put_signed(kGrid[pattern], half_steps(d, word >> 28, 0.25f), signs, out);
  }
}

// 8 elements: a pattern of 9 bits and seven signs; a scale of four bits for 16.
void decode_iq2_xs(const std::byte* block, float* out) {
  static const Grid<8> kGrid = grid_of<8>(kIq2XsGrid, kIq2Levels);
  const float d = f16_at(block, 0);
  for (int g = 0; g < 32; ++g, out += 8) {
    const unsigned code = unsigned_at<std::uint16_t>(block, 2 + 2 * g);
    const float scale = half_steps(d, four_bits(block + 66, g / 2), 0.25f);
    put_signed(kGrid[code & 511], scale, even_signs(code >> 9), out);
  }
}

// Patterns of 10 bits, whose upper two are apart, and eight signs; a scale of four bits for 16.
void decode_iq2_s(const std::byte* block, float* out) {
  static const Grid<8> kGrid = grid_of<8>(kIq2SGrid, kIq2Levels);
  const float d = f16_at(block, 0);
  for (int g = 0; g < 32; ++g, out += 8) {
    const unsigned high = u8_at(block, 66 + g / 4) >> (2 * (g % 4)) & 3;
    const float scale = half_steps(d, four_bits(block + 74, g / 2), 0.25f);
    put_signed(kGrid[u8_at(block, 2 + g) | high << 8], scale, u8_at(block, 34 + g), out);
  }
}

// 32 elements: eight patterns of 8 bits; apart, four times seven signs and a scale of four bits.
void decode_iq3_xxs(const std::byte* block, float* out) {
  static const Grid<4> kGrid = grid_of<4>(kIq3XxsGrid, kIq3XxsLevels);
  const float d = f16_at(block, 0);
  for (int g = 0; g < 64; ++g, out += 4) {
    const auto word = unsigned_at<std::uint32_t>(block, 66 + g / 8 * 4);
    const unsigned signs = even_signs(word >> (7 * (g % 8 / 2)) & 127) >> (4 * (g % 2));
    put_signed(kGrid[u8_at(block, 2 + g)], half_steps(d, word >> 28, 0.5f), signs, out);
  }
}

// 4 elements: a pattern of 9 bits, whose upper one is apart, and four signs; a scale for 32.
void decode_iq3_s(const std::byte* block, float* out) {
  static const Grid<4> kGrid = grid_of<4>(kIq3SGrid, kIq3SLevels);
  const float d = f16_at(block, 0);
  for (int g = 0; g < 64; ++g, out += 4) {
    const unsigned high = u8_at(block, 66 + g / 8) >> (g % 8) & 1;
    const float scale = odd_steps(d, four_bits(block + 106, g / 8));
    put_signed(kGrid[u8_at(block, 2 + g) | high << 8], scale, four_bits(block + 74, g), out);
  }
}

// 32 elements: four patterns of 11 bits, whose upper three are in a word with the scale (3 bits)
// and the sign of the shift.
void decode_iq1_s(const std::byte* block, float* out) {
  const float d = f16_at(block, 0);
  for (int g = 0; g < 32; ++g, out += 8) {
    const unsigned word = unsigned_at<std::uint16_t>(block, 34 + g / 4 * 2);
    const unsigned high = word >> (3 * (g % 4)) & 7;
    const float scale = odd_steps(d, word >> 12 & 7);
    put_shifted(u8_at(block, 2 + g) | high << 8, scale, (word & 0x8000) != 0, out);
  }
}

// 8 elements: a pattern of 11 bits, whose upper three are in a nibble with the sign of the shift.
// Four words have a scale of 3 bits for each 16 elements, and in their upper nibbles the f16 d.
void decode_iq1_m(const std::byte* block, float* out) {
  std::uint16_t half = 0;
  for (int i = 0; i < 4; ++i) {
    half = static_cast<std::uint16_t>(half | u8_at(block, 48 + 2 * i + 1) >> 4 << (4 * i));
  }
  const float d = f16_to_f32(half);
  for (int g = 0; g < 32; ++g, out += 8) {
    const unsigned word = unsigned_at<std::uint16_t>(block, 48 + g / 8 * 2);
    const unsigned high = four_bits(block + 32, g);
    const float scale = odd_steps(d, word >> (3 * (g % 8 / 2)) & 7);
    put_shifted(u8_at(block, g) | (high & 7) << 8, scale, (high & 8) != 0, out);
  }
}

}  // namespace leq
