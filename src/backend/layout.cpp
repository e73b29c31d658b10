#include "backend/layout.h"

#include "base/bytes.h"
#include "base/error.h"

namespace leq {
namespace {

RowsFormat segment_format(const Linear& consumer, const WeightView& weight, TermsOf terms_of) {
  RowsFormat format;
  if (!is_coded(consumer.act)) {
    if (terms_of != nullptr) format.terms = terms_of(weight);
    return format;
  }
  require(weight.scheme.takes_codes(), consumer.name, ": ", scheme_name(weight.scheme),
          " weights take f32 inputs, act ", act_name(consumer.act), " found");
  format.act = consumer.act;
  if (weight.scheme.is_offset()) {
    format.sum_group = static_cast<int>(sum_group(weight.scheme, consumer.act, consumer.inputs));
  }
  return format;
}

}  // namespace

RowsLayout rows_layout(std::int64_t capacity, std::int64_t width, const RowsFormat& format,
                       const RowsSpacing& spacing) {
  RowsLayout layout;
  if (format.values) layout.value_stride = spacing.value_stride;
  if (is_coded(format.act)) {
    const std::int64_t padded = round_up(width, kPaddedColumns);
    layout.code_stride = spacing.code_stride;
    const int columns = scale_columns(format.act);
    layout.scale_stride = columns > 0 ? padded / columns : 1;
    if (format.sum_group > 0) {
      layout.sum_stride = round_up(padded, format.sum_group) / format.sum_group;
    }
  }
  if (format.terms > 0) {
    layout.code_stride = spacing.code_stride;
    layout.scale_stride = 2;
  }
  const auto part = [&](std::int64_t stride, std::int64_t size) {
    const std::size_t at = layout.bytes;
    layout.bytes += static_cast<std::size_t>(round_up(capacity * stride * size, spacing.alignment));
    return at;
  };
  part(layout.value_stride, 4);
  layout.codes_at = part(layout.code_stride, 1);
  layout.scales_at = part(layout.scale_stride, 4);
  layout.sums_at = part(layout.sum_stride, 4);
  return layout;
}

Rows allocate_rows(DeviceMemory& memory, const Layout& layout, std::int64_t capacity,
                   std::int64_t width, const RowsFormat& format) {
  const RowsLayout parts = layout.rows(capacity, width, format);
  Rows rows;
  rows.capacity = capacity;
  rows.width = width;
  rows.format = format;
  rows.value_stride = parts.value_stride;
  rows.code_stride = parts.code_stride;
  rows.scale_stride = parts.scale_stride;
  rows.sum_stride = parts.sum_stride;
  rows.memory = Buffer(memory, parts.bytes);
  std::byte* start = rows.memory.data();
  if (parts.value_stride > 0) rows.values = reinterpret_cast<float*>(start);
  if (parts.code_stride > 0) {
    rows.codes = reinterpret_cast<std::uint8_t*>(start + parts.codes_at);
    rows.scales = reinterpret_cast<float*>(start + parts.scales_at);
  }
  if (parts.sum_stride > 0) rows.sums = reinterpret_cast<std::int32_t*>(start + parts.sums_at);
  return rows;
}

RowsFormat rows_format(const Linear& consumer, TermsOf terms_of) {
  const WeightView& first = consumer.segments[0].weight;
  const RowsFormat format = segment_format(consumer, first, terms_of);
  for (const LinearSegment& segment : consumer.parts()) {
    require(segment_format(consumer, segment.weight, terms_of) == format, consumer.name,
            ": expected weights that read one format of inputs, found ", scheme_name(first.scheme),
            " and ", scheme_name(segment.weight.scheme));
  }
  return format;
}

namespace {

constexpr std::uintptr_t kFirstAddress = 4096, kAlignment = 256;

}  // namespace

CountingMemory::CountingMemory(const Layout& layout)
    : DeviceMemory(layout.block_unit()), layout_(layout), next_(kFirstAddress) {}

WeightView CountingMemory::place(const WeightView& weight, std::vector<Buffer>& owner) {
  const std::size_t bytes = layout_.weight_bytes(weight);
  if (bytes > 0) owner.emplace_back(*this, bytes);
  return weight;
}

std::byte* CountingMemory::allocate_block(std::size_t bytes) {
  const std::uintptr_t block = next_;
  next_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return reinterpret_cast<std::byte*>(block);
}

}  // namespace leq
