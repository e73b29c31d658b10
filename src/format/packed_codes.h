// Decoders of the codes in quantized safetensors checkpoints: floats of 8 and 4 bits, and integers
// of 2 to 8 bits packed in words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace leq {

// The values of the 256 codes. E4M3: bias 7, no infinities, NaN in 0x7f and 0xff. E5M2: bias 15,
// the upper byte of an f16.
const std::array<float, 256>& float8_e4m3_values();
const std::array<float, 256>& float8_e5m2_values();
// The values of the 16 codes of E2M1 multiplied by two, which are integers up to 12.
extern const std::array<std::int8_t, 16> kFloat4Doubles;
// 2^(e - 127); NaN for 255.
float float8_e8m0_value(std::uint8_t code);

// Code `index` in a sequence of codes of `bits` bits that are densely packed in 32-bit words with a
// stride of `stride` words.
std::uint32_t code_in_words(const std::byte* words, std::int64_t stride, int bits,
                            std::int64_t index);
// The position of each of eight rows in an AWQ word: bits 4 * position to 4 * position + 3.
inline constexpr std::array<int, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

}  // namespace leq
