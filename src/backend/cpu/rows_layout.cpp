#include "backend/cpu/rows_layout.h"

#include <utility>

#include "base/error.h"

namespace leq::cpu {
namespace {

std::int64_t rounded(std::int64_t count, std::int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

}  // namespace

RowsLayout rows_layout(std::int64_t capacity, std::int64_t width, const RowsFormat& format) {
  RowsLayout layout;
  const std::int64_t padded = rounded(width, kPaddedColumns);
  // Rows do not lie a multiple of 4096 bytes apart: equal columns would share one cache set.
  layout.value_stride = format.values ? rounded(width, 16) + 16 : 0;
  if (format.act != ActKind::none) {
    layout.code_stride = padded + 64;
    layout.scale_stride = format.act == ActKind::g128 ? padded / 128 : 1;
    layout.sum_stride =
        format.sum_group > 0 ? rounded(padded, format.sum_group) / format.sum_group : 0;
  }
  const auto part = [&](std::int64_t stride, std::int64_t size) {
    const std::size_t at = layout.bytes;
    layout.bytes += static_cast<std::size_t>(rounded(capacity * stride * size, 64));
    return at;
  };
  part(layout.value_stride, 4);
  layout.codes_at = part(layout.code_stride, 1);
  layout.scales_at = part(layout.scale_stride, 4);
  layout.sums_at = part(layout.sum_stride, 4);
  return layout;
}

Rows make_rows(const RowsLayout& layout, std::int64_t capacity, std::int64_t width,
               const RowsFormat& format, Buffer memory) {
  Rows rows;
  rows.capacity = capacity;
  rows.width = width;
  rows.format = format;
  rows.value_stride = layout.value_stride;
  rows.code_stride = layout.code_stride;
  rows.scale_stride = layout.scale_stride;
  rows.sum_stride = layout.sum_stride;
  std::byte* start = memory.data();
  if (layout.value_stride > 0) rows.values = reinterpret_cast<float*>(start);
  if (layout.code_stride > 0) {
    rows.codes = reinterpret_cast<std::uint8_t*>(start + layout.codes_at);
    rows.scales = reinterpret_cast<float*>(start + layout.scales_at);
  }
  if (layout.sum_stride > 0) rows.sums = reinterpret_cast<std::int32_t*>(start + layout.sums_at);
  rows.memory = std::move(memory);
  return rows;
}

QuantizedUnit quantized_unit(const RowsFormat& format) {
  switch (format.act) {
    case ActKind::none:
      return QuantizedUnit::nothing;
    case ActKind::g128:
      return QuantizedUnit::columns_128;
    case ActKind::tensor:
      return format.sum_group > kPaddedColumns ? QuantizedUnit::row : QuantizedUnit::columns_128;
    case ActKind::row:
      return QuantizedUnit::row;
    case ActKind::online:
      return QuantizedUnit::rows;
  }
  return QuantizedUnit::nothing;
}

namespace {

// What is quantized when a whole row is there keeps its f32 numbers too; int8 weights want codes +
// 128, unsigned ones want the codes' sums.
RowsFormat segment_format(const Linear& consumer, const WeightView& weight) {
  RowsFormat format;
  if (consumer.act == ActKind::none) return format;
  const QuantScheme& scheme = weight.scheme;
  require(scheme.is_integer(), consumer.name, ": ", scheme_name(scheme),
          " weights take f32 inputs, act ", act_name(consumer.act), " found");
  format.act = consumer.act;
  format.offset_codes = !scheme.is_offset();
  if (scheme.is_offset()) {
    format.sum_group = static_cast<int>(sum_group(scheme, consumer.act, consumer.inputs));
  }
  format.values = quantized_unit(format) != QuantizedUnit::columns_128;
  return format;
}

}  // namespace

RowsFormat rows_format(const Linear& consumer) {
  const WeightView& first = consumer.segments[0].weight;
  const RowsFormat format = segment_format(consumer, first);
  for (const LinearSegment& segment : consumer.parts()) {
    require(segment_format(consumer, segment.weight) == format, consumer.name,
            ": expected weights that read one format of inputs, found ", scheme_name(first.scheme),
            " and ", scheme_name(segment.weight.scheme));
  }
  return format;
}

}  // namespace leq::cpu
