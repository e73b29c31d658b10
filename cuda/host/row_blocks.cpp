#include "cuda/host/row_blocks.h"

#include "cuda/kernels/layout.h"

namespace leq::LEQ_GPU {

namespace {

constexpr std::int64_t kPieceBytes = sizeof(std::uint16_t);

// Three pieces of bf16 or two of f16 hold an f32 number; f32 weights take it as it is.
int pieces_of(const WeightView& weight) {
  if (weight.scheme.kind == CodeKind::f32) return 0;
  return weight.scheme.kind == CodeKind::bf16 ? 3 : 2;
}

}  // namespace

RowsLayout rows_layout(std::int64_t capacity, std::int64_t width, const RowsFormat& format) {
  const std::int64_t code_bytes = format.pieces > 0 ? format.pieces * kPieceBytes : 1;
  return leq::rows_layout(capacity, width, format,
                          {float_stride(width), padded_columns(width) * code_bytes, 256});
}

RowsFormat input_format(const Linear& consumer) { return rows_format(consumer, pieces_of); }

PieceRows piece_rows(const Rows& rows) {
  return {reinterpret_cast<std::uint16_t*>(rows.format.pieces > 0 ? rows.codes : nullptr),
          rows.scales, rows.code_stride / kPieceBytes, rows.format.pieces};
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
