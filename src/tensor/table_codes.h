// Schemes of 4-bit codes that stand for one of 16 integers in a table, times a scale: E2M1 times
// two (MXFP4, groups of 32 columns; NVFP4, 16) and the levels of GGUF's IQ4. Kernels look integers
// up where they unpack codes, so that products with integer inputs are exact.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tensor/pack.h"

namespace leq {

using TableNumbers = std::array<std::int8_t, 16>;
inline constexpr TableNumbers kFloat4Doubles = {0, 1,  2,  3,  4,  6,  8,  12,
                                                0, -1, -2, -3, -4, -6, -8, -12};
inline constexpr TableNumbers kIq4Levels = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};

constexpr const TableNumbers& table_numbers(CodeKind kind) {
  return kind == CodeKind::iq4_nl ? kIq4Levels : kFloat4Doubles;
}

// The form for kernels: unsigned bytes, the numbers plus table_zero(kind), repeated, so that
// registers of every width load whole tables from any multiple of 16.
constexpr int table_zero(CodeKind kind) { return kind == CodeKind::iq4_nl ? 128 : 12; }
using KernelTable = std::array<std::uint8_t, 256>;
const KernelTable& kernel_table(CodeKind kind);  // aligned to 64 bytes

// The number nearest to any x, the larger of two equally near ones, at index half_steps(x). Between
// neighbouring multiples of one half the nearest number does not change.
using NearestNumbers = std::array<float, 512>;
const NearestNumbers& nearest_numbers(CodeKind kind);
inline int half_steps(float x) {
  return static_cast<int>(2 * (x < -128.0f ? -128.0f : x > 127.5f ? 127.5f : x) + 256.0f);
}
// The code of the number nearest to x.
int nearest_table_code(CodeKind kind, float x);
// Replaces numbers of a table, or other int8 numbers, by the codes of the nearest ones.
void numbers_to_codes(CodeKind kind, std::span<std::int16_t> codes);

// The scale of a group with about the least squared error, as f16 holds it; 0 if all values are
// (nearly) 0. `weights` of the errors are >= 0; empty: all 1.
float fit_table_scale(CodeKind kind, std::span<const float> x, std::span<const float> weights = {});

// nvfp4: the byte of a scale is bits 7 to 14 of a f16, which is the E4M3 number divided by 2^8; in
// a WeightView, scale_mul is the tensor's f32 scale times 2^7 (numbers are E2M1 times two).
inline constexpr float kByteScaleFactor = 128.0f;
constexpr std::uint16_t half_of_byte_scale(std::uint8_t byte) {
  return static_cast<std::uint16_t>(byte << 7);
}

}  // namespace leq
