#include "backend/cpu/gather.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/half.h"

namespace leq::cpu {
namespace {

const std::byte* float_row(const WeightView& table, std::int64_t row, std::int64_t bytes) {
  return table.codes + row * table.columns * bytes;
}

void gather_f32(const WeightView& table, std::int64_t row, float* out) {
  std::memcpy(out, float_row(table, row, 4), static_cast<std::size_t>(table.columns) * 4);
}

template <float (*widen)(std::uint16_t)>
void gather_half(const WeightView& table, std::int64_t row, float* out) {
  const auto* halves = reinterpret_cast<const std::uint16_t*>(float_row(table, row, 2));
  for (std::int64_t k = 0; k < table.columns; ++k) out[k] = widen(halves[k]);
}

// Scale of a row, or of one group of it.
float scale_of(const WeightView& table, std::int64_t row, std::int64_t group) {
  if (table.scheme.scaling != Scaling::group) {
    return static_cast<const float*>(table.scales)[row];
  }
  const std::int64_t groups = table.padded_columns() / table.scheme.group;
  const std::int64_t index = (row / kPanelRows * groups + group) * kPanelRows + row % kPanelRows;
  return f16_to_f32(static_cast<const std::uint16_t*>(table.scales)[index]) * table.scale_mul;
}

// The row's codes lie in quads, 256 bytes apart for each plane of 8 / bits quads.
template <int bits>
void gather_codes(const WeightView& table, std::int64_t row, float* out) {
  constexpr int kQuads = 8 / bits;  // quads that share a byte
  const auto* panel = reinterpret_cast<const std::uint8_t*>(table.codes) +
                      row / kPanelRows * (kPanelRows * table.padded_columns() * bits / 8) +
                      row % kPanelRows * 4;
  const bool grouped = table.scheme.scaling == Scaling::group;
  const std::int64_t group = grouped ? table.scheme.group : table.columns;
  for (std::int64_t first = 0; first < table.columns; first += group) {
    const float scale = scale_of(table, row, first / group);
    const std::int64_t last = std::min(first + group, table.columns);
    for (std::int64_t k = first; k < last; ++k) {
      const int byte = panel[k / 4 / kQuads * 256 + k % 4];
      const int shift = bits * static_cast<int>(k / 4 % kQuads);
      const int code = bits == 8 ? static_cast<std::int8_t>(byte)
                                 : (byte >> shift & ((1 << bits) - 1)) - (1 << (bits - 1));
      out[k] = static_cast<float>(code) * scale;
    }
  }
}

using Gather = void (*)(const WeightView&, std::int64_t, float*);

Gather gather_for(const QuantScheme& scheme) {
  switch (scheme.kind) {
    case CodeKind::f32:
      return gather_f32;
    case CodeKind::f16:
      return gather_half<f16_to_f32>;
    case CodeKind::bf16:
      return gather_half<bf16_to_f32>;
    case CodeKind::int_:
      if (scheme.bits == 8) return gather_codes<8>;
      if (scheme.bits == 4) return gather_codes<4>;
      return nullptr;
    default:
      return nullptr;
  }
}

}  // namespace

void gather_row(const WeightView& table, std::int64_t row, float* out) {
  gather_for(table.scheme)(table, row, out);
}

void require_gatherable(const WeightView& table) {
  require(gather_for(table.scheme) != nullptr, "embedding table: cannot read ",
          scheme_name(table.scheme), " rows; quantize again with --type int8");
}

}  // namespace leq::cpu
