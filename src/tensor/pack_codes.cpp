// Packs codes that a method has chosen.
#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "base/half.h"
#include "tensor/nf4.h"
#include "tensor/pack.h"
#include "tensor/plane_writer.h"

namespace leq {
namespace {

struct Shape2 {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t group = 0;    // columns that share a scale
  std::int64_t per_row = 0;  // groups
};

Shape2 shape_of(const QuantScheme& scheme, std::int64_t rows, std::int64_t columns) {
  const std::int64_t group = scheme.scaling == Scaling::group ? scheme.group : columns;
  return {rows, columns, group, (columns + group - 1) / group};
}

struct CodeRange {
  int low = 0;
  int high = 0;
};
CodeRange code_range(const QuantScheme& scheme) {
  if (scheme.kind != CodeKind::int_) return {0, (1 << scheme.bits) - 1};
  if (scheme.bits == 8) return {-127, 127};
  return {-scheme.bias(), scheme.bias() - 1};
}

// Numbers in `scales` and in `zeros` that a scheme wants.
struct Counts {
  std::int64_t scales = 0;
  std::int64_t zeros = 0;
};
Counts counts_of(const QuantScheme& scheme, const Shape2& shape) {
  const std::int64_t groups = shape.rows * shape.per_row;
  if (scheme.kind == CodeKind::nf4) {
    const std::int64_t parts = (shape.columns + kNf4SizeColumns - 1) / kNf4SizeColumns;
    return {(shape.rows + kPanelRows - 1) / kPanelRows * parts * 2, groups};
  }
  if (scheme.kind == CodeKind::b1) return {groups * 8, shape.columns};
  return {groups, scheme.kind == CodeKind::uint_ ? groups : 0};
}

void check(const ChosenCodes& chosen, const Shape2& shape, const QuantScheme& scheme) {
  ensure(!scheme.is_float(), "pack: type ", scheme_name(scheme), " has no codes");
  ensure(
      shape.rows > 0 && shape.columns > 0 && std::ssize(chosen.codes) == shape.rows * shape.columns,
      "pack: expected ", shape.rows, " x ", shape.columns, " codes, found ", chosen.codes.size());
  const Counts counts = counts_of(scheme, shape);
  ensure(std::ssize(chosen.scales) == counts.scales, "pack: expected ", counts.scales,
         " scales, found ", chosen.scales.size());
  ensure(std::ssize(chosen.zeros) == counts.zeros, "pack: expected ", counts.zeros,
         " zero points, found ", chosen.zeros.size());
  const CodeRange range = code_range(scheme);
  const auto [low, high] = std::minmax_element(chosen.codes.begin(), chosen.codes.end());
  ensure(*low >= range.low && *high <= range.high, "pack: ", scheme_name(scheme), " codes are ",
         range.low, " to ", range.high, ", found ", *low, " to ", *high);
  if (scheme.kind == CodeKind::uint_) {
    const int zero = *std::max_element(chosen.zeros.begin(), chosen.zeros.end());
    ensure(zero <= range.high, "pack: ", scheme_name(scheme), " zero points are 0 to ", range.high,
           ", found ", zero);
  }
}

// What stands for 0 in a column behind the last.
std::uint8_t pad_code(const ChosenCodes& chosen, const Shape2& shape, const QuantScheme& scheme,
                      std::int64_t row, std::int64_t column) {
  if (scheme.kind == CodeKind::nf4) return kNf4Zero;
  const std::int64_t group = scheme.scaling == Scaling::group ? column / shape.group : 0;
  const bool ranged = scheme.kind == CodeKind::uint_ && group < shape.per_row;
  return ranged ? chosen.zeros[static_cast<std::size_t>(row * shape.per_row + group)]
                : static_cast<std::uint8_t>(scheme.bias());
}

// Planes of nf4: first values and steps lie as chosen, but with parts for all padded columns.
void put_nf4(const ChosenCodes& chosen, const Shape2& shape, PackedWeight& packed,
             PlaneWriter& writer) {
  writer.put_zeros(chosen.zeros, shape.per_row);
  // ceil(K/256) and ceil(Kp/256) are equal: Kp is a multiple of 128.
  std::memcpy(packed.scales.data(), chosen.scales.data(), chosen.scales.size() * sizeof(float));
}

void put_b1(const ChosenCodes& chosen, const Shape2& shape, PackedWeight& packed) {
  const std::int64_t blocks = round_up(shape.columns, kPaddedColumns) / kPaddedColumns;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t i = 0; i < shape.per_row * 8; ++i) {
      const float number =
          chosen.scales[static_cast<std::size_t>(row * shape.per_row * 8 + i)] / packed.scale_mul;
      const std::uint16_t half = f32_to_f16(number);
      const std::int64_t at =
          ((row / kPanelRows * blocks + i / 8) * kPanelRows + row % kPanelRows) * 8 + i % 8;
      std::memcpy(packed.scales.data() + at * 2, &half, sizeof half);
    }
  }
  for (std::int64_t k = 0; k < shape.columns; ++k) {
    if (chosen.zeros[static_cast<std::size_t>(k)] == 0) continue;
    packed.zeros[static_cast<std::size_t>(k / 8)] |= std::byte{1} << (k % 8);
  }
}

}  // namespace

PackedWeight pack_codes(const ChosenCodes& chosen, std::int64_t rows, std::int64_t columns,
                        const QuantScheme& scheme, ActKind act) {
  const Shape2 shape = shape_of(scheme, rows, columns);
  check(chosen, shape, scheme);
  PackedWeight packed = empty_weight(scheme, act, rows, columns);
  packed.scale_mul = chosen.scale_mul;
  PlaneWriter writer(packed);
  if (scheme.kind == CodeKind::nf4) {
    put_nf4(chosen, shape, packed, writer);
  } else if (scheme.kind == CodeKind::b1) {
    put_b1(chosen, shape, packed);
  } else {
    writer.put_scales(chosen.scales, shape.per_row);
    if (!chosen.zeros.empty()) writer.put_zeros(chosen.zeros, shape.per_row);
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t first = 0; first < columns; first += kBlockColumns) {
      CodeBlock block;
      for (std::int64_t k = first; k < first + kBlockColumns; ++k) {
        const auto at = static_cast<std::size_t>(row * columns + k);
        block[static_cast<std::size_t>(k - first)] =
            k < columns ? static_cast<std::uint8_t>(chosen.codes[at] + scheme.bias())
                        : pad_code(chosen, shape, scheme, row, k);
      }
      writer.put_codes(row, first, block);
    }
  }
  return packed;
}

}  // namespace leq
