// Reads stored weights back, one value at a time or by rows: the specification of what codes mean.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "tensor/nf4.h"
#include "tensor/pack.h"

namespace leq {
namespace {

float float_at(const WeightView& weight, std::int64_t index) {
  if (weight.scheme.kind == CodeKind::f32) {
    float value = 0;
    std::memcpy(&value, weight.codes + index * 4, sizeof value);
    return value;
  }
  std::uint16_t half = 0;
  std::memcpy(&half, weight.codes + index * 2, sizeof half);
  return weight.scheme.kind == CodeKind::f16 ? f16_to_f32(half) : bf16_to_f32(half);
}

constexpr std::int64_t kStep = 32;  // columns read at once; never crosses a group
using Codes = std::array<std::uint8_t, kStep>;

// Adds a plane's `bits` bits of columns [first, first + 32) of a row to `out`, as bits from `to`
// on.
void read_bits(const WeightView& weight, const std::byte* plane, std::int64_t row,
               std::int64_t first, int bits, int to, Codes& out) {
  const std::byte* from = plane + panel_byte(bits, weight.padded_columns(), row, first);
  const int quads = 8 / bits;  // of columns that share a byte
  const std::uint32_t mask = 0x01010101u * ((1u << bits) - 1);
  for (std::size_t k = 0; k < kStep; k += static_cast<std::size_t>(4 * quads), from += 256) {
    std::uint32_t four_bytes = 0;
    std::memcpy(&four_bytes, from, 4);
    for (int i = 0; i < quads; ++i) {
      std::uint32_t quad = 0;
      std::byte* at = reinterpret_cast<std::byte*>(out.data()) + k + 4 * i;
      std::memcpy(&quad, at, 4);
      quad |= (four_bytes >> (bits * i) & mask) << to;
      std::memcpy(at, &quad, 4);
    }
  }
}

// Codes of columns [first, first + 32) as stored.
void read_codes(const WeightView& weight, std::int64_t row, std::int64_t first, Codes& out) {
  const CodePlanes planes = code_planes(weight.scheme, weight.rows, weight.columns);
  out = {};
  read_bits(weight, weight.codes, row, first, planes.low_bits, 0, out);
  if (planes.high_bits == 0) return;
  read_bits(weight, weight.codes + planes.high_at, row, first, planes.high_bits, planes.low_bits,
            out);
}

std::int64_t group_index(const WeightView& weight, std::int64_t row, std::int64_t column) {
  const std::int64_t groups = weight.padded_columns() / weight.scheme.group;
  return (row / kPanelRows * groups + column / weight.scheme.group) * kPanelRows + row % kPanelRows;
}

float f16_at(const WeightView& weight, std::int64_t index) {
  std::uint16_t half = 0;
  std::memcpy(&half, static_cast<const std::byte*>(weight.scales) + index * 2, sizeof half);
  return f16_to_f32(half) * weight.scale_mul;
}

float f32_at(const WeightView& weight, std::int64_t index) {
  float value = 0;
  std::memcpy(&value, static_cast<const std::byte*>(weight.scales) + index * 4, sizeof value);
  return value;
}

float nf4_size(const WeightView& weight, std::int64_t row, std::int64_t column) {
  const std::int64_t parts = (weight.padded_columns() + kNf4SizeColumns - 1) / kNf4SizeColumns;
  const std::int64_t part = row / kPanelRows * parts + column / kNf4SizeColumns;
  const auto u = static_cast<float>(weight.zeros[group_index(weight, row, column)]);
  return std::fma(u, f32_at(weight, part * 2 + 1), f32_at(weight, part * 2));
}

// The four values of ordinary and of salient columns: mean + or - size, for a salient column that
// of the value plus that of its residual (BiLLM, Huang et al. 2024, section 3).
struct B1Values {
  float plain[4];
  float salient[4];
};
B1Values b1_values(const WeightView& weight, std::int64_t row, std::int64_t column) {
  float numbers[8];
  for (std::int64_t i = 0; i < 8; ++i) {
    numbers[i] = f16_at(weight, group_index(weight, row, column) * 8 + i);
  }
  const auto either = [&](int pair, int plus) {
    return plus != 0 ? numbers[2 * pair] + numbers[2 * pair + 1]
                     : numbers[2 * pair] - numbers[2 * pair + 1];
  };
  B1Values values;
  for (int code = 0; code < 4; ++code) {
    values.plain[code] = either(2 + (code >> 1), code & 1);
    values.salient[code] = either(0, code & 1) + either(1, code >> 1);
  }
  return values;
}

void unpack_b1(const WeightView& weight, std::int64_t row, std::int64_t first, const Codes& codes,
               std::span<float> out) {
  const B1Values values = b1_values(weight, row, first);
  for (std::size_t k = 0; k < out.size(); ++k) {
    const auto column = first + static_cast<std::int64_t>(k);
    const bool salient = (weight.zeros[column / 8] >> (column % 8) & 1) != 0;
    out[k] = (salient ? values.salient : values.plain)[codes[k] & 3];
  }
}

// Columns [first, first + out.size()) of a step.
void unpack_step(const WeightView& weight, std::int64_t row, std::int64_t first,
                 std::span<float> out) {
  Codes codes;
  read_codes(weight, row, first, codes);
  if (weight.scheme.kind == CodeKind::b1) {
    unpack_b1(weight, row, first, codes, out);
  } else if (weight.scheme.kind == CodeKind::nf4) {
    const float size = nf4_size(weight, row, first);
    for (std::size_t k = 0; k < out.size(); ++k) out[k] = kNf4Levels[codes[k] & 15] * size;
  } else if (!weight.scheme.is_offset()) {
    const float scale = scale_at(weight, row, first);
    for (std::size_t k = 0; k < out.size(); ++k) {
      out[k] = static_cast<float>(static_cast<std::int8_t>(codes[k])) * scale;
    }
  } else {
    const float scale = scale_at(weight, row, first);
    const int zero = weight.scheme.bias() + zero_at(weight, row, first);
    for (std::size_t k = 0; k < out.size(); ++k) {
      out[k] = static_cast<float>(codes[k] - zero) * scale;
    }
  }
}

}  // namespace

int code_at(const WeightView& weight, std::int64_t row, std::int64_t column) {
  ensure(!weight.scheme.is_float(), "type ", scheme_name(weight.scheme), " has no codes");
  Codes codes;
  read_codes(weight, row, column / kStep * kStep, codes);
  const std::uint8_t stored = codes[static_cast<std::size_t>(column % kStep)];
  if (weight.scheme.is_integer() && !weight.scheme.is_offset()) {
    return static_cast<std::int8_t>(stored);
  }
  return stored - weight.scheme.bias();
}

float scale_at(const WeightView& weight, std::int64_t row, std::int64_t column) {
  if (weight.scheme.is_float()) return 1.0f;
  if (weight.scheme.kind == CodeKind::nf4) return nf4_size(weight, row, column);
  ensure(weight.scheme.kind != CodeKind::b1, "type b1 has eight numbers for a scale");
  if (weight.scheme.scaling != Scaling::group) return f32_at(weight, row);
  return f16_at(weight, group_index(weight, row, column));
}

int zero_at(const WeightView& weight, std::int64_t row, std::int64_t column) {
  if (weight.scheme.kind != CodeKind::uint_) return 0;
  if (weight.scheme.scaling != Scaling::group) return weight.zeros[row];
  return weight.zeros[group_index(weight, row, column)];
}

void unpack_columns(const WeightView& weight, std::int64_t row, std::int64_t first,
                    std::span<float> out) noexcept {
  const std::int64_t count = std::ssize(out);
  if (weight.scheme.is_float()) {
    for (std::int64_t k = 0; k < count; ++k) {
      out[static_cast<std::size_t>(k)] = float_at(weight, row * weight.columns + first + k);
    }
    return;
  }
  for (std::int64_t k = 0; k < count; k += kStep) {
    unpack_step(weight, row, first + k,
                out.subspan(static_cast<std::size_t>(k),
                            static_cast<std::size_t>(std::min(kStep, count - k))));
  }
}

void unpack_row(const WeightView& weight, std::int64_t row, std::span<float> out) {
  ensure(std::ssize(out) == weight.columns, "unpack: expected room for ", weight.columns,
         " values, found ", out.size());
  unpack_columns(weight, row, 0, out);
}

}  // namespace leq
