// Packs codes that a method has chosen.
#include <algorithm>

#include "base/error.h"
#include "tensor/code_formats.h"
#include "tensor/pack.h"
#include "tensor/plane_writer.h"

namespace leq {
namespace {

struct Shape2 {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t group = 0;    // columns that share a scale
  std::int64_t per_row = 0;  // groups per row
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

void check(const ChosenCodes& chosen, const Shape2& shape, const QuantScheme& scheme) {
  ensure(!scheme.is_float(), "pack: type ", scheme_name(scheme), " has no codes");
  ensure(
      shape.rows > 0 && shape.columns > 0 && std::ssize(chosen.codes) == shape.rows * shape.columns,
      "pack: expected ", shape.rows, " x ", shape.columns, " codes, found ", chosen.codes.size());
  const ChosenCounts counts = chosen_counts(scheme, shape.rows, shape.columns);
  ensure(std::ssize(chosen.scales) == counts.scales, "pack: expected ", counts.scales,
         " scales, found ", chosen.scales.size());
  ensure(std::ssize(chosen.zeros) == counts.zeros, "pack: expected ", counts.zeros,
         " zero points, found ", chosen.zeros.size());
  const CodeRange range = code_range(scheme);
  std::int16_t low = chosen.codes[0], high = low;
  for (const std::int16_t code : chosen.codes) {
    low = std::min(low, code), high = std::max(high, code);
  }
  ensure(low >= range.low && high <= range.high, "pack: ", scheme_name(scheme), " codes are ",
         range.low, " to ", range.high, ", found ", low, " to ", high);
  if (scheme.kind == CodeKind::uint_) {
    const int zero = *std::max_element(chosen.zeros.begin(), chosen.zeros.end());
    ensure(zero <= range.high, "pack: ", scheme_name(scheme), " zero points are 0 to ", range.high,
           ", found ", zero);
  }
}

// The code of value 0, used for padding columns.
std::uint8_t pad_code(const ChosenCodes& chosen, const Shape2& shape, const QuantScheme& scheme,
                      std::int64_t row, std::int64_t column) {
  if (const CodeFormat* format = code_format(scheme.kind)) return format->zero;
  const std::int64_t group = scheme.scaling == Scaling::group ? column / shape.group : 0;
  const bool ranged = scheme.kind == CodeKind::uint_ && group < shape.per_row;
  return ranged ? chosen.zeros[static_cast<std::size_t>(row * shape.per_row + group)]
                : static_cast<std::uint8_t>(scheme.bias());
}

}  // namespace

ChosenCounts chosen_counts(const QuantScheme& scheme, std::int64_t rows, std::int64_t columns) {
  if (const CodeFormat* format = code_format(scheme.kind)) return format->counts(rows, columns);
  const std::int64_t groups = rows * shape_of(scheme, rows, columns).per_row;
  return {groups, scheme.kind == CodeKind::uint_ ? groups : 0};
}

PackedWeight pack_codes(const ChosenCodes& chosen, std::int64_t rows, std::int64_t columns,
                        const QuantScheme& scheme, ActKind act) {
  const Shape2 shape = shape_of(scheme, rows, columns);
  check(chosen, shape, scheme);
  PackedWeight packed = empty_weight(scheme, act, rows, columns);
  packed.scale_mul = chosen.scale_mul;
  PlaneWriter writer(packed);
  if (const CodeFormat* format = code_format(scheme.kind)) {
    format->put(chosen, packed);
  } else {
    writer.put_scales(chosen.scales, shape.per_row);
    if (!chosen.zeros.empty()) writer.put_zeros(chosen.zeros, shape.per_row);
  }
  const int bias = scheme.bias();
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t first = 0; first < columns; first += kBlockColumns) {
      CodeBlock block;
      const std::int16_t* codes = chosen.codes.data() + row * columns + first;
      const std::int64_t count = std::min(kBlockColumns, columns - first);
      std::transform(codes, codes + count, block.begin(),
                     [bias](std::int16_t code) { return static_cast<std::uint8_t>(code + bias); });
      for (std::int64_t i = count; i < kBlockColumns; ++i) {
        block[static_cast<std::size_t>(i)] = pad_code(chosen, shape, scheme, row, first + i);
      }
      writer.put_codes(row, first, block);
    }
  }
  return packed;
}

}  // namespace leq
