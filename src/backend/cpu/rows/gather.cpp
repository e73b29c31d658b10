#include "backend/cpu/rows/gather.h"

#include <cstring>

#include "base/half.h"
#include "tensor/pack.h"

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

// For int8 with a scale per row, as in most embeddings: quads of columns are 256 bytes apart.
void gather_int8_row(const WeightView& table, std::int64_t row, float* out) {
  const auto* quads = reinterpret_cast<const std::int8_t*>(table.codes) +
                      panel_byte(8, table.padded_columns(), row, 0);
  const float scale = static_cast<const float*>(table.scales)[row];
  for (std::int64_t k = 0; k < table.columns; ++k) {
    out[k] = static_cast<float>(quads[k / 4 * 256 + k % 4]) * scale;
  }
}

void gather_any(const WeightView& table, std::int64_t row, float* out) {
  unpack_columns(table, row, 0, {out, static_cast<std::size_t>(table.columns)});
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
      return scheme.bits == 8 && scheme.scaling != Scaling::group ? gather_int8_row : gather_any;
    default:
      return gather_any;
  }
}

}  // namespace

void gather_row(const WeightView& table, std::int64_t row, float* out) {
  gather_for(table.scheme)(table, row, out);
}

}  // namespace leq::cpu
