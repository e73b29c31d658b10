#include "cuda/host/row_blocks.h"

namespace leq::LEQ_GPU {

TermRows term_rows(const Rows& rows) {
  return {reinterpret_cast<std::uint16_t*>(rows.format.terms > 0 ? rows.codes : nullptr),
          rows.scales, rows.code_stride / std::int64_t{sizeof(std::uint16_t)}, rows.format.terms};
}

Rows plain_rows(const Rows& rows) {
  Rows plain;
  plain.capacity = rows.capacity;
  plain.width = rows.width;
  plain.values = rows.values;
  plain.value_stride = rows.value_stride;
  return plain;
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
  made.group = scale_columns(rows.format.act);
  made.sum_group = rows.format.sum_group;
  return made;
}

}  // namespace leq::LEQ_GPU
