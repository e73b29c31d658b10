// Decoders of the codes in quantized safetensors checkpoints: floats of 8 and 4 bits, and integers
// of 2 to 8 bits packed in words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/tensor_source.h"
#include "tensor/pack.h"
#include "tensor/quant_scheme.h"

namespace leq {

// The values of the 256 codes. E4M3: bias 7, no infinities, NaN in 0x7f and 0xff. E5M2: bias 15,
// the upper byte of an f16.
const std::array<float, 256>& float8_e4m3_values();
const std::array<float, 256>& float8_e5m2_values();
// 2^(e - 127); NaN for 255.
float float8_e8m0_value(std::uint8_t code);

// Code `index` in a sequence of codes of `bits` bits that are densely packed in 32-bit words with a
// stride of `stride` words.
std::uint32_t code_in_words(const std::byte* words, std::int64_t stride, int bits,
                            std::int64_t index);
// The position of each of eight rows in an AWQ word: bits 4 * position to 4 * position + 3.
inline constexpr std::array<int, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

// One matrix [N][K] that a quantized safetensors checkpoint stores as several tensors: codes, and
// the scales, zero points and column order needed to decode them. docs/checkpoints.md has the table
// of layouts.

// The layout of codes in their tensor. Words have 32 bits and are filled from the low bits; a code
// of 3 bits may span two words.
enum class CodeForm : std::uint8_t {
  words_down,    // [ceil(K b / 32)][N]: along the columns of a row (GPTQ)
  words_across,  // [N][ceil(K b / 32)]: along the rows (compressed-tensors)
  words_awq,     // [K][N / 8]: eight rows in a word, in AWQ's order
  signed_bytes,  // [N][K] I8
  float8_e4m3,   // [N][K]
  float8_e5m2,   // [N][K]
  float4_e2m1,   // [N][K / 2] U8, two columns in a byte, low half first
};

// One scale for each `rows` x `columns` block of the matrix; the scale of block (i, j) is
// element i * row_stride + j * column_stride of the tensor.
struct ScalePlane {
  const SourceTensor* tensor = nullptr;
  bool is_exponent = false;  // a byte e that encodes 2^(e - 127) (E8M0)
  std::int64_t rows = 1, columns = 1;
  std::int64_t row_stride = 1, column_stride = 0;

  float at(std::int64_t row, std::int64_t column_block) const;
};

// Zero points of integer codes, one for each block that has a scale.
struct ZeroPlane {
  const SourceTensor* tensor = nullptr;  // null: 2^(bits - 1) for all
  // Shape by form: words_down [blocks][ceil(N b / 32)], words_awq [blocks][N / 8], words_across
  // [ceil(N b / 32)][blocks], signed_bytes [N][blocks]. Words are filled along rows.
  CodeForm form = CodeForm::signed_bytes;
  bool plus_one = false;  // stored minus one, modulo 2^bits (GPTQ, version 1)
};

struct PackedMatrix {
  std::int64_t rows = 0, columns = 0;  // N, K
  const SourceTensor* codes = nullptr;
  CodeForm form = CodeForm::signed_bytes;
  int bits = 8;
  ScalePlane scales;
  ZeroPlane zeros;
  std::vector<std::int32_t> column_blocks;  // [K] scale block of each column; empty: in order
  float common = 1;                         // factor of all scales, or their divisor if `divides`
  bool divides = false;
  std::string type;  // for users: "GPTQ int4 g128"

  bool is_integer() const { return form <= CodeForm::signed_bytes; }
  // Whether one scale covers a whole row.
  bool has_row_scales() const { return scales.columns >= columns; }

  // Dequantizes elements [first, first + out.size()) of one row: (code - zero) * scale, in f32.
  void read_row(std::int64_t row, std::int64_t first, std::span<float> out) const;
  // The scheme that represents all values exactly; nullopt if there is none. Makes one pass over
  // scales and zero points, and over codes of 8 bits.
  std::optional<QuantScheme> own_scheme() const;
  // See TensorSource::read_codes.
  bool read_codes(const QuantScheme& scheme, std::int64_t first, std::int64_t count,
                  ChosenCodes& out) const;
};

}  // namespace leq
