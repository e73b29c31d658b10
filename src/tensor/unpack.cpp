// Reads stored weights, by single values or rows: the specification of what codes mean.
#include "tensor/pack.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/error.h"
#include "base/half.h"
#include "tensor/code_formats.h"
#include "tensor/weight_layout.h"

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

constexpr std::int64_t kStep = 32;  // columns read at once, always in one group
using Codes = std::array<std::uint8_t, kStep>;

// Adds the bits that a plane has for columns [first, first + 32) of a row to `out`, shifted left by
// `to`.
void read_bits(const WeightView& weight, const std::byte* plane, std::int64_t row,
               std::int64_t first, int bits, int to, Codes& out) {
  const std::byte* from = plane + panel_byte(bits, weight.padded_columns(), row, first);
  const int quads = 8 / bits;  // quads of columns that share a byte
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

// Stored codes of columns [first, first + 32).
void read_codes(const WeightView& weight, std::int64_t row, std::int64_t first, Codes& out) {
  const CodePlanes planes = code_planes(weight);
  out = {};
  read_bits(weight, weight.codes, row, first, planes.low_bits, 0, out);
  if (planes.high_bits == 0) return;
  read_bits(weight, weight.codes + planes.high_at, row, first, planes.high_bits, planes.low_bits,
            out);
}

std::int64_t place_of(const WeightView& weight, std::int64_t row, std::int64_t column) {
  return group_index(weight.columns, weight.scheme.group, row, column);
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

// Values of columns [first, first + out.size()), which are part of one step.
void unpack_step(const WeightView& weight, std::int64_t row, std::int64_t first,
                 std::span<float> out) {
  Codes codes;
  read_codes(weight, row, first, codes);
  if (const CodeFormat* format = code_format(weight.scheme.kind)) {
    format->unpack(weight, row, first, codes, out);
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

// Writes the result of code_at for each column of a row of an integer weight to out [columns].
void read_row_codes(const WeightView& weight, std::int64_t row, std::span<std::int16_t> out) {
  ensure(weight.scheme.is_integer(), "type ", scheme_name(weight.scheme), " has no integer codes");
  ensure(std::ssize(out) == weight.columns, "codes: expected room for ", weight.columns, ", found ",
         out.size());
  const bool is_signed = !weight.scheme.is_offset();
  const int bias = weight.scheme.bias();
  for (std::int64_t first = 0; first < weight.columns; first += kStep) {
    Codes codes;
    read_codes(weight, row, first, codes);
    const std::int64_t count = std::min(kStep, weight.columns - first);
    for (std::int64_t k = 0; k < count; ++k) {
      const std::uint8_t stored = codes[static_cast<std::size_t>(k)];
      const int code = is_signed ? static_cast<std::int8_t>(stored) : stored - bias;
      out[static_cast<std::size_t>(first + k)] = static_cast<std::int16_t>(code);
    }
  }
}

float scale_at(const WeightView& weight, std::int64_t row, std::int64_t column) {
  if (weight.scheme.is_float()) return 1.0f;
  if (const CodeFormat* format = code_format(weight.scheme.kind)) {
    ensure(format->scale_at != nullptr, "type ", format->name, " has several numbers for a scale");
    return format->scale_at(weight, row, column);
  }
  if (weight.scheme.scaling != Scaling::group) return f32_at(weight, row);
  return f16_at(weight, place_of(weight, row, column));
}

int zero_at(const WeightView& weight, std::int64_t row, std::int64_t column) {
  if (weight.scheme.kind != CodeKind::uint_) return 0;
  if (weight.scheme.scaling != Scaling::group) return weight.zeros[row];
  return weight.zeros[place_of(weight, row, column)];
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
