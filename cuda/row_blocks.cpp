#include "cuda/row_blocks.h"

#include "cuda/layout.h"

namespace leq::LEQ_GPU {

RowsLayout rows_layout(std::int64_t capacity, std::int64_t width, const RowsFormat& format) {
  return leq::rows_layout(capacity, width, format,
                          {float_stride(width), padded_columns(width), 256});
}

FloatRows float_rows(const Rows& rows) { return {rows.values, rows.value_stride}; }

CodeRows code_rows(const Rows& rows) {
  CodeRows made;
  made.codes = reinterpret_cast<std::int8_t*>(rows.codes);
  made.scales = rows.scales;
  made.sums = rows.sums;
  made.code_stride = rows.code_stride;
  made.scale_stride = rows.scale_stride;
  made.sum_stride = rows.sum_stride;
  made.group = rows.format.act == ActKind::g128 ? 128 : 0;
  made.sum_group = rows.format.sum_group;
  return made;
}

}  // namespace leq::LEQ_GPU
