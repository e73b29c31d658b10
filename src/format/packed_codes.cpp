#include "format/packed_codes.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"

namespace leq {
namespace {

std::array<float, 256> make_e4m3() {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                     : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    const bool is_nan = exponent == 15 && mantissa == 7;
    values[static_cast<std::size_t>(code)] = is_nan       ? std::numeric_limits<float>::quiet_NaN()
                                             : code < 128 ? size
                                                          : -size;
  }
  return values;
}

std::array<float, 256> make_e5m2() {
  std::array<float, 256> values{};
  for (std::size_t code = 0; code < 256; ++code) {
    values[code] = f16_to_f32(static_cast<std::uint16_t>(code << 8));
  }
  return values;
}

std::uint32_t word_at(const std::byte* words, std::int64_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, words + index * 4, sizeof word);
  return word;
}

}  // namespace

const std::array<std::int8_t, 16> kFloat4Doubles = {0, 1,  2,  3,  4,  6,  8,  12,
                                                    0, -1, -2, -3, -4, -6, -8, -12};

const std::array<float, 256>& float8_e4m3_values() {
  static const std::array<float, 256> values = make_e4m3();
  return values;
}

const std::array<float, 256>& float8_e5m2_values() {
  static const std::array<float, 256> values = make_e5m2();
  return values;
}

float float8_e8m0_value(std::uint8_t code) {
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, code - 127);
}

std::uint32_t code_in_words(const std::byte* words, std::int64_t stride, int bits,
                            std::int64_t index) {
  const std::int64_t bit = index * bits;
  const int shift = static_cast<int>(bit % 32);
  std::uint64_t code = word_at(words, bit / 32 * stride) >> shift;
  if (shift + bits > 32) {
    code |= static_cast<std::uint64_t>(word_at(words, (bit / 32 + 1) * stride)) << (32 - shift);
  }
  return static_cast<std::uint32_t>(code & ((1u << bits) - 1));
}

}  // namespace leq
