#include "backend/rows_slice.h"

#include <algorithm>
#include <array>
#include <vector>

#include "backend/operations.h"
#include "base/bytes.h"
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

// The number of columns for which a plane of a block has one number; 0: one per row.
struct PlaneUnit {
  std::int64_t columns = 1;
  std::size_t bytes = 1;
};

// The byte ranges of each rank's columns in a row. A number for the whole row is equal on all
// ranks, so the first rank with columns sends it. Padding belongs to the last rank with columns.
std::vector<ByteRange> parts_of(const SharedColumns& shared, const PlaneUnit& unit,
                                std::int64_t width, std::int64_t padded) {
  std::vector<ByteRange> parts;
  bool first = true;
  for (const Slice& slice : shared.columns) {
    ByteRange part;
    if (slice.empty()) {
      // This rank has no columns in the plane.
    } else if (unit.columns > 0) {
      const std::int64_t last = slice.last == width ? padded : slice.last;
      part.first = static_cast<std::size_t>(slice.first / unit.columns) * unit.bytes;
      part.last = static_cast<std::size_t>((last + unit.columns - 1) / unit.columns) * unit.bytes;
    } else if (first) {
      part.last = unit.bytes;
    }
    first = first && slice.empty();
    parts.push_back(part);
  }
  return parts;
}

template <class T>
SharedRows plane_of(T* all, std::int64_t stride, const T* own, std::int64_t own_stride,
                    std::int64_t tokens, std::span<const ByteRange> parts) {
  SharedRows plane;
  plane.rows = tokens;
  plane.parts = parts;
  plane.own = reinterpret_cast<const std::byte*>(own);
  plane.own_stride = static_cast<std::size_t>(own_stride) * sizeof(T);
  plane.all = reinterpret_cast<std::byte*>(all);
  plane.stride = static_cast<std::size_t>(stride) * sizeof(T);
  return plane;
}

}  // namespace

void share_rows(const RowsFor& out, std::int64_t tokens, const SharedColumns& shared) {
  const Rows &rows = out.rows, &own = shared.own;
  std::int64_t width = 0;  // width of the whole rows, which not every rank may have
  for (const Slice& slice : shared.columns) width = std::max(width, slice.last);
  if (!is_coded(own.format.act)) {
    const std::vector<ByteRange> parts = parts_of(shared, {1, sizeof(float)}, width, width);
    const SharedRows values =
        plane_of(rows.values, rows.value_stride, own.values, own.value_stride, tokens, parts);
    return shared.ranks.gather({&values, 1}, shared.to, shared.site);
  }
  const std::int64_t padded = round_up(width, kPaddedColumns);
  const std::int64_t scale_group = scale_columns(rows.format.act);
  const std::int64_t sum_group = std::max(1, rows.format.sum_group);
  const std::array parts = {parts_of(shared, {1, 1}, width, padded),
                            parts_of(shared, {scale_group, sizeof(float)}, width, padded),
                            parts_of(shared, {sum_group, sizeof(std::int32_t)}, width, padded)};
  const std::array planes = {
      plane_of(rows.codes, rows.code_stride, own.codes, own.code_stride, tokens, parts[0]),
      plane_of(rows.scales, rows.scale_stride, own.scales, own.scale_stride, tokens, parts[1]),
      plane_of(rows.sums, rows.sum_stride, own.sums, own.sum_stride, tokens, parts[2])};
  const std::size_t count = rows.sums != nullptr ? 3 : 2;
  shared.ranks.gather(std::span(planes).first(count), shared.to, shared.site);
}

}  // namespace leq
