#include "format/packed_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/half.h"
#include "tensor/table_codes.h"

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

namespace {

constexpr int kMaxGroup = 128;

std::uint8_t byte_at(const SourceTensor& tensor, std::int64_t index) {
  return std::to_integer<std::uint8_t>(tensor.bytes[static_cast<std::size_t>(index)]);
}

template <class T>
T number_at(const SourceTensor& tensor, std::int64_t index) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

// Reads the unsigned codes of columns [first, first + out.size()) of a row.
void unpack_row(const PackedMatrix& matrix, std::int64_t row, std::int64_t first,
                std::span<std::uint8_t> out) {
  const std::byte* bytes = matrix.codes->bytes.data();
  const auto count = std::ssize(out);
  const auto set = [&](auto code) {
    for (std::int64_t i = 0; i < count; ++i) {
      out[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(code(first + i));
    }
  };
  switch (matrix.form) {
    case CodeForm::words_down:
      return set([&](std::int64_t k) {
        return code_in_words(bytes + row * 4, matrix.rows, matrix.bits, k);
      });
    case CodeForm::words_across: {
      const std::int64_t words = matrix.codes->shape[1];
      return set([&](std::int64_t k) {
        return code_in_words(bytes + row * words * 4, 1, matrix.bits, k);
      });
    }
    case CodeForm::words_awq: {
      const std::int64_t words = matrix.rows / 8;
      const int place = kAwqPlaces[static_cast<std::size_t>(row % 8)];
      return set([&](std::int64_t k) {
        return code_in_words(bytes + (k * words + row / 8) * 4, 1, 4, place);
      });
    }
    case CodeForm::float4_e2m1:
      return set([&](std::int64_t k) {
        const std::uint8_t pair = byte_at(*matrix.codes, row * (matrix.columns / 2) + k / 2);
        return k % 2 == 0 ? pair & 15 : pair >> 4;
      });
    default:
      std::memcpy(out.data(), bytes + row * matrix.columns + first, out.size());
      if (matrix.form != CodeForm::signed_bytes) return;
      for (std::uint8_t& code : out) code ^= 0x80;  // adds 128
  }
}

std::int32_t zero_at(const PackedMatrix& matrix, std::int64_t row, std::int64_t block) {
  const ZeroPlane& zeros = matrix.zeros;
  if (zeros.tensor == nullptr) return 1 << (matrix.bits - 1);
  const std::byte* bytes = zeros.tensor->bytes.data();
  std::uint32_t zero = 0;
  if (zeros.form == CodeForm::words_down) {
    zero = code_in_words(bytes + block * zeros.tensor->shape[1] * 4, 1, matrix.bits, row);
  } else if (zeros.form == CodeForm::words_across) {
    const std::int64_t blocks = zeros.tensor->shape[1];
    zero = code_in_words(bytes + block * 4, blocks, matrix.bits, row);
  } else if (zeros.form == CodeForm::words_awq) {
    const int place = kAwqPlaces[static_cast<std::size_t>(row % 8)];
    zero = code_in_words(bytes + (block * (matrix.rows / 8) + row / 8) * 4, 1, 4, place);
  } else {
    const std::int64_t blocks = zeros.tensor->shape.size() == 2 ? zeros.tensor->shape[1] : 1;
    zero = byte_at(*zeros.tensor, row * blocks + block) ^ 0x80u;
  }
  if (zeros.plus_one) zero = (zero + 1) & ((1u << matrix.bits) - 1);
  return static_cast<std::int32_t>(zero);
}

float scale_at(const PackedMatrix& matrix, std::int64_t row, std::int64_t block) {
  const float scale = matrix.scales.at(row, block);
  return matrix.divides ? scale / matrix.common : scale * matrix.common;
}

std::int64_t blocks_of(const PackedMatrix& matrix) {
  return (matrix.columns + matrix.scales.columns - 1) / matrix.scales.columns;
}

std::int64_t block_of(const PackedMatrix& matrix, std::int64_t column) {
  if (matrix.column_blocks.empty()) return column / matrix.scales.columns;
  return matrix.column_blocks[static_cast<std::size_t>(column)];
}

// The value of a floating-point code.
float float_of(CodeForm form, std::uint8_t code) {
  if (form == CodeForm::float8_e4m3) return float8_e4m3_values()[code];
  if (form == CodeForm::float8_e5m2) return float8_e5m2_values()[code];
  return 0.5f * static_cast<float>(kFloat4Doubles[code]);
}

bool are_centred(const PackedMatrix& matrix) {
  if (matrix.zeros.tensor == nullptr) return true;
  const std::int64_t blocks = blocks_of(matrix);
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      if (zero_at(matrix, row, block) != 1 << (matrix.bits - 1)) return false;
    }
  }
  return true;
}

// Whether any 8-bit code is -128, which symmetric schemes cannot represent.
bool has_lowest_code(const PackedMatrix& matrix) {
  const int lowest = matrix.form == CodeForm::signed_bytes ? 0x80 : 0;
  const auto bytes = matrix.codes->bytes;
  return std::memchr(bytes.data(), lowest, bytes.size()) != nullptr;
}

// The group size of a scheme in which each group has one scale of the matrix; 0 if there is none.
int group_of(const PackedMatrix& matrix) {
  if (!matrix.column_blocks.empty()) return 0;
  if (matrix.has_row_scales()) return kMaxGroup;
  for (const int group : {128, 64, 32}) {
    if (matrix.scales.columns % group == 0) return group;
  }
  return 0;
}

bool is_f16(float value) { return std::isfinite(value) && f16_to_f32(f32_to_f16(value)) == value; }

// Whether every scale is representable in f16, as grouped schemes require.
bool has_f16_scales(const PackedMatrix& matrix) {
  const std::int64_t blocks = blocks_of(matrix);
  const float factor = matrix.form == CodeForm::float4_e2m1 ? 0.5f : 1.0f;
  for (std::int64_t row = 0; row < matrix.rows; row += matrix.scales.rows) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      if (!is_f16(scale_at(matrix, row, block) * factor)) return false;
    }
  }
  return true;
}

// E2M1 codes with power-of-two scales, which are stored as twice the value and half the scale.
bool is_mxfp4(const PackedMatrix& matrix) {
  return matrix.form == CodeForm::float4_e2m1 && matrix.scales.is_exponent && group_of(matrix) > 0;
}

// E2M1 codes with E4M3 scales of 16 columns. Their signs and NaN are looked for in `rows` rows.
bool is_nvfp4(const PackedMatrix& matrix, std::int64_t first, std::int64_t rows) {
  const ScalePlane& scales = matrix.scales;
  if (matrix.form != CodeForm::float4_e2m1 || scales.tensor->file_dtype != "F8_E4M3" ||
      scales.rows != 1 || scales.columns != 16 || !std::isfinite(128 / matrix.common) ||
      !std::isfinite(128 * matrix.common) || matrix.common <= 0) {
    return false;
  }
  const auto bytes =
      scales.tensor->bytes.subspan(static_cast<std::size_t>(first * scales.row_stride),
                                   static_cast<std::size_t>(rows * scales.row_stride));
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte < std::byte{0x7f}; });
}

bool read_nvfp4(const PackedMatrix& matrix, std::int64_t first, std::int64_t rows,
                ChosenCodes& out) {
  if (!is_nvfp4(matrix, first, rows)) return false;
  out.codes.clear();
  out.scales.clear();
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(matrix.columns));
  for (std::int64_t row = first; row < first + rows; ++row) {
    unpack_row(matrix, row, 0, codes);
    out.codes.insert(out.codes.end(), codes.begin(), codes.end());
    for (std::int64_t block = 0; block < blocks_of(matrix); ++block) {
      out.scales.push_back(0.5f * scale_at(matrix, row, block));
    }
  }
  out.scale_mul = kByteScaleFactor * (matrix.divides ? 1 / matrix.common : matrix.common);
  return true;
}

// Converts one row to `scheme`, with one scale per group; false if a value is not representable.
bool put_row(const PackedMatrix& matrix, const QuantScheme& scheme, std::int64_t row,
             std::span<std::int16_t> codes, std::span<float> scales,
             std::span<std::uint8_t> zeros) {
  const bool is_float4 = !matrix.is_integer();
  std::vector<std::uint8_t> stored(codes.size());
  unpack_row(matrix, row, 0, stored);
  const std::size_t group =
      scheme.scaling == Scaling::row ? codes.size() : static_cast<std::size_t>(scheme.group);
  const int lowest = scheme.bits == 8 ? -127 : -(1 << (scheme.bits - 1));
  for (std::size_t g = 0; g < scales.size(); ++g) {
    const std::size_t first = g * group, end = std::min(first + group, codes.size());
    const std::int64_t block = block_of(matrix, static_cast<std::int64_t>(first));
    const int zero = is_float4 ? 0 : zero_at(matrix, row, block);
    scales[g] = scale_at(matrix, row, block) * (is_float4 ? 0.5f : 1.0f);
    const bool fits = scheme.scaling == Scaling::row ? std::isfinite(scales[g]) : is_f16(scales[g]);
    if (!fits) return false;
    const int middle = 1 << (scheme.bits - 1);
    const bool is_uint = scheme.kind == CodeKind::uint_;
    if (is_uint) zeros[g] = static_cast<std::uint8_t>(is_float4 ? middle : zero);
    for (std::size_t k = first; k < end; ++k) {
      if (scheme.has_table()) {
        codes[k] = stored[k];
        continue;
      }
      const int number = is_float4 ? kFloat4Doubles[stored[k]] : stored[k] - zero;
      if (!is_uint && (number < lowest || number >= middle)) return false;
      codes[k] = static_cast<std::int16_t>(!is_uint    ? number
                                           : is_float4 ? number + middle
                                                       : stored[k]);
    }
  }
  return true;
}

}  // namespace

float ScalePlane::at(std::int64_t row, std::int64_t column_block) const {
  const std::int64_t index = row / rows * row_stride + column_block * column_stride;
  if (is_exponent) return float8_e8m0_value(byte_at(*tensor, index));
  switch (tensor->dtype) {
    case DType::f32:
      return number_at<float>(*tensor, index);
    case DType::f16:
      return f16_to_f32(number_at<std::uint16_t>(*tensor, index));
    case DType::bf16:
      return bf16_to_f32(number_at<std::uint16_t>(*tensor, index));
    default:
      return float8_e4m3_values()[byte_at(*tensor, index)];
  }
}

void PackedMatrix::read_row(std::int64_t row, std::int64_t first, std::span<float> out) const {
  constexpr std::size_t kChunk = 512;
  std::array<std::uint8_t, kChunk> stored;
  std::int64_t block = -1;
  float scale = 0;
  int zero = 0;
  for (std::size_t done = 0; done < out.size(); done += kChunk) {
    const std::size_t count = std::min(kChunk, out.size() - done);
    const std::int64_t begin = first + static_cast<std::int64_t>(done);
    unpack_row(*this, row, begin, std::span(stored).first(count));
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t now = block_of(*this, begin + static_cast<std::int64_t>(i));
      if (now != block) {
        block = now;
        scale = scale_at(*this, row, block);
        zero = is_integer() ? zero_at(*this, row, block) : 0;
      }
      const float number =
          is_integer() ? static_cast<float>(stored[i] - zero) : float_of(form, stored[i]);
      out[done + i] = number * scale;
    }
  }
}

std::optional<QuantScheme> PackedMatrix::own_scheme() const {
  if (is_nvfp4(*this, 0, rows)) return parse_scheme("nvfp4");
  const int group = group_of(*this);
  const bool by_rows = is_integer() && bits == 8 && has_row_scales();
  if (!(is_integer() || is_mxfp4(*this)) || group == 0) return std::nullopt;
  if (!by_rows && !has_f16_scales(*this)) return std::nullopt;
  if (!is_integer()) {
    if (group == 32) return parse_scheme("mxfp4");
    return QuantScheme{CodeKind::int_, 8, Scaling::group, group};
  }
  const bool centred = are_centred(*this) && (bits < 8 || !has_lowest_code(*this));
  const CodeKind kind = centred ? CodeKind::int_ : CodeKind::uint_;
  if (by_rows) return QuantScheme{kind, 8, Scaling::row, 0};
  return QuantScheme{kind, bits > 4 ? 8 : bits, Scaling::group, group};
}

bool PackedMatrix::read_codes(const QuantScheme& scheme, std::int64_t first, std::int64_t count,
                              ChosenCodes& out) const {
  if (scheme.has_byte_scales()) return read_nvfp4(*this, first, count, out);
  const bool by_rows = scheme.scaling == Scaling::row;
  const int group = group_of(*this);
  const bool is_table = scheme.kind == CodeKind::mxfp4;
  const bool integers = scheme.kind == CodeKind::int_ || scheme.kind == CodeKind::uint_ || is_table;
  const bool bits_fit = is_integer() && !is_table && scheme.bits >= bits;
  const bool groups_fit = by_rows ? has_row_scales() && column_blocks.empty()
                                  : scheme.scaling == Scaling::group && group > 0 &&
                                        scheme.group <= group && group % scheme.group == 0;
  if (!integers || !groups_fit ||
      !(bits_fit || (is_mxfp4(*this) && (is_table || scheme.bits == 8)))) {
    return false;
  }
  const auto wide = static_cast<std::size_t>(columns);
  const std::size_t groups = by_rows ? 1
                                     : (wide + static_cast<std::size_t>(scheme.group) - 1) /
                                           static_cast<std::size_t>(scheme.group);
  const auto lines = static_cast<std::size_t>(count);
  out.codes.resize(lines * wide);
  out.scales.resize(lines * groups);
  out.zeros.resize(scheme.kind == CodeKind::uint_ ? lines * groups : 0);
  for (std::size_t line = 0; line < lines; ++line) {
    std::span<std::uint8_t> own_zeros(out.zeros);
    if (!own_zeros.empty()) own_zeros = own_zeros.subspan(line * groups, groups);
    if (!put_row(*this, scheme, first + static_cast<std::int64_t>(line),
                 std::span(out.codes).subspan(line * wide, wide),
                 std::span(out.scales).subspan(line * groups, groups), own_zeros)) {
      return false;
    }
  }
  return true;
}

}  // namespace leq
