#include "backend/cpu/rows/rows_layout.h"

#include "backend/rows_slice.h"
#include "base/bytes.h"

namespace leq::cpu {

RowsLayout rows_layout(std::int64_t capacity, std::int64_t width, const RowsFormat& format) {
  // Row strides are not multiples of 4096, because equal columns would then share a cache set.
  return leq::rows_layout(capacity, width, format,
                          {round_up(width, 16) + 16, round_up(width, kPaddedColumns) + 64, 64});
}

QuantizedUnit quantized_unit(const RowsFormat& format) {
  if (!is_coded(format.act)) return QuantizedUnit::nothing;
  if (has_moving_scale(format.act)) return QuantizedUnit::rows;
  return coded_by_columns(format) ? QuantizedUnit::columns_128 : QuantizedUnit::row;
}

// Formats that are quantized by whole rows keep the f32 values. int8 weights need codes + 128,
// unsigned weights need the sums of codes.
RowsFormat rows_format(const Linear& consumer) {
  RowsFormat format = leq::rows_format(consumer);
  if (!is_coded(format.act)) return format;
  format.offset_codes = format.sum_group == 0;
  format.values = quantized_unit(format) != QuantizedUnit::columns_128;
  return format;
}

}  // namespace leq::cpu
