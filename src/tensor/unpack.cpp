// Reads stored weights back, one value at a time or by rows: the specification of what codes mean.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
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

// Codes of columns [first, first + 32) of a row of a panel, as signed numbers.
void read_codes(const WeightView& weight, std::int64_t row, std::int64_t first,
                std::array<std::int8_t, kStep>& out) {
  const int bits = weight.scheme.bits;
  const std::byte* from = weight.codes +
                          row / kPanelRows * (kPanelRows * weight.padded_columns() * bits / 8) +
                          first * bits / 8 * kPanelRows + row % kPanelRows * 4;
  if (bits == 8) {
    for (std::size_t k = 0; k < kStep; k += 4, from += 256) std::memcpy(out.data() + k, from, 4);
    return;
  }
  for (std::size_t k = 0; k < kStep; k += 8, from += 256) {
    for (std::size_t i = 0; i < 4; ++i) {
      const int stored = std::to_integer<int>(from[i]);
      out[k + i] = static_cast<std::int8_t>((stored & 15) - 8);
      out[k + 4 + i] = static_cast<std::int8_t>((stored >> 4) - 8);
    }
  }
}

void require_readable(const QuantScheme& scheme) {
  require(scheme.kind == CodeKind::int_ && (scheme.bits == 8 || scheme.bits == 4), "type ",
          scheme_name(scheme), " has no codes that this version can read");
}

}  // namespace

int code_at(const WeightView& weight, std::int64_t row, std::int64_t column) {
  const int bits = weight.scheme.bits;
  require_readable(weight.scheme);
  const std::int64_t per_byte = 8 / bits;
  const std::int64_t byte = row / kPanelRows * (kPanelRows * weight.padded_columns() * bits / 8) +
                            column / 4 / per_byte * 256 + row % kPanelRows * 4 + column % 4;
  const auto stored = std::to_integer<unsigned>(weight.codes[byte]);
  if (bits == 8) return static_cast<std::int8_t>(stored);
  const auto shift = static_cast<unsigned>(bits * (column / 4 % per_byte));
  const unsigned mask = (1u << bits) - 1;
  return static_cast<int>(stored >> shift & mask) - (1 << (bits - 1));
}

float scale_at(const WeightView& weight, std::int64_t row, std::int64_t column) {
  if (weight.scheme.is_float()) return 1.0f;
  const auto* bytes = static_cast<const std::byte*>(weight.scales);
  if (weight.scheme.scaling != Scaling::group) {
    float scale = 0;
    std::memcpy(&scale, bytes + row * 4, sizeof scale);
    return scale;
  }
  const std::int64_t groups = weight.padded_columns() / weight.scheme.group;
  const std::int64_t index =
      (row / kPanelRows * groups + column / weight.scheme.group) * kPanelRows + row % kPanelRows;
  std::uint16_t half = 0;
  std::memcpy(&half, bytes + index * 2, sizeof half);
  return f16_to_f32(half) * weight.scale_mul;
}

void unpack_row(const WeightView& weight, std::int64_t row, std::span<float> out) {
  require(static_cast<std::int64_t>(out.size()) == weight.columns, "unpack: expected room for ",
          weight.columns, " values, found ", out.size());
  if (weight.scheme.is_float()) {
    for (std::int64_t k = 0; k < weight.columns; ++k) {
      out[static_cast<std::size_t>(k)] = float_at(weight, row * weight.columns + k);
    }
    return;
  }
  require_readable(weight.scheme);
  std::array<std::int8_t, kStep> codes;
  for (std::int64_t first = 0; first < weight.columns; first += kStep) {
    const float scale = scale_at(weight, row, first);
    read_codes(weight, row, first, codes);
    const std::int64_t count = std::min(kStep, weight.columns - first);
    for (std::int64_t k = 0; k < count; ++k) {
      out[static_cast<std::size_t>(first + k)] =
          static_cast<float>(codes[static_cast<std::size_t>(k)]) * scale;
    }
  }
}

}  // namespace leq
