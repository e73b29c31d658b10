#include "backend/rows_slice.h"

#include "backend/operations.h"
#include "base/error.h"
#include "tensor/weight_layout.h"

namespace leq {

bool coded_by_columns(const RowsFormat& format) {
  if (!is_coded(format.act) || has_moving_scale(format.act)) return false;
  const bool known = has_stored_scale(format.act) && format.sum_group <= kPaddedColumns;
  return scale_columns(format.act) > 0 || known;
}

Rows slice_columns(const Rows& rows, const Slice& columns) {
  const bool codes = coded_by_columns(rows.format);
  ensure(columns.first >= 0 && columns.last <= rows.width &&
             (!codes || columns.first % kPaddedColumns == 0),
         "rows: columns ", columns.first, " to ", columns.last, " of ", rows.width);
  Rows slice;
  slice.capacity = rows.capacity;
  slice.width = columns.count();
  if (rows.values != nullptr) {
    slice.value_stride = rows.value_stride;
    slice.values = rows.values + columns.first;
  }
  if (!codes) return slice;
  slice.format = rows.format;
  slice.code_stride = rows.code_stride;
  slice.scale_stride = rows.scale_stride;
  slice.sum_stride = rows.sum_stride;
  slice.codes = rows.codes + columns.first;
  const std::int64_t scale_group = scale_columns(rows.format.act);
  slice.scales = rows.scales + (scale_group > 0 ? columns.first / scale_group : 0);
  if (rows.sums != nullptr) slice.sums = rows.sums + columns.first / rows.format.sum_group;
  return slice;
}

Rows slice_tokens(const Rows& rows, const Slice& tokens) {
  ensure(tokens.first >= 0 && tokens.last <= rows.capacity, "rows: ", tokens.first, " to ",
         tokens.last, " of ", rows.capacity);
  const auto moved = [&](auto* plane, std::int64_t stride) {
    return plane == nullptr ? plane : plane + tokens.first * stride;
  };
  Rows slice;
  slice.capacity = tokens.count();
  slice.width = rows.width;
  slice.format = rows.format;
  slice.value_stride = rows.value_stride;
  slice.code_stride = rows.code_stride;
  slice.scale_stride = rows.scale_stride;
  slice.sum_stride = rows.sum_stride;
  slice.values = moved(rows.values, rows.value_stride);
  slice.codes = moved(rows.codes, rows.code_stride);
  slice.scales = moved(rows.scales, rows.scale_stride);
  slice.sums = moved(rows.sums, rows.sum_stride);
  return slice;
}

RowsConsumer slice_consumer(const RowsConsumer& consumer, const Rows& rows, const Slice& columns) {
  RowsConsumer own;
  if (coded_by_columns(rows.format)) own.act_scale = consumer.act_scale;
  if (consumer.inv_smooth != nullptr) own.inv_smooth = consumer.inv_smooth + columns.first;
  return own;
}

std::unique_ptr<Communicator> Operations::connect(Communicator&, std::span<std::byte>) {
  return nullptr;
}

namespace {

[[noreturn]] void fail_without_experts() {
  fail(ErrorKind::no_device, "models with experts do not run on this device yet; use the CPU");
}

}  // namespace

void Operations::route(const Rows&, std::int64_t, const Routing&, std::string_view, ExpertRoutes&) {
  fail_without_experts();
}

void Operations::experts_gated(const Rows&, const ExpertRoutes&, const ExpertLinears&, Rows&,
                               Rows&) {
  fail_without_experts();
}

void Operations::experts_add(const Rows&, const ExpertRoutes&, const ExpertLinear&, Rows&) {
  fail_without_experts();
}

}  // namespace leq
