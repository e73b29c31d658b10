#include "tensor/weight_layout.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "tensor/code_formats.h"

namespace leq {

bool fits_act(const QuantScheme& scheme, ActKind act) {
  if (!scheme.takes_codes() || scheme.scaling != Scaling::group || scale_columns(act) == 0) {
    return true;
  }
  return scheme.group <= scale_columns(act);
}

std::int64_t sum_group(const QuantScheme& scheme, ActKind act, std::int64_t columns) {
  const std::int64_t all = round_up(columns, kPaddedColumns);
  const std::int64_t of_weight = scheme.scaling == Scaling::group ? scheme.group : all;
  const std::int64_t of_act = scale_columns(act) > 0 ? scale_columns(act) : all;
  return std::min(of_weight, of_act);
}

bool sums_are_per_row(const QuantScheme& scheme, ActKind act) {
  return scheme.scaling != Scaling::group && is_coded(act) && scale_columns(act) == 0;
}

CodePlanes code_planes(const QuantScheme& scheme, std::int64_t rows, std::int64_t columns) {
  // Splits the bits into a power of two and the rest: 2 + 1, 4 + 1, 4 + 2.
  const int low = scheme.bits == 3 ? 2 : scheme.bits == 5 || scheme.bits == 6 ? 4 : scheme.bits;
  if (low == scheme.bits) return {low, 0, 0};
  return {low, scheme.bits - low,
          round_up(rows, kPanelRows) * round_up(columns, kPaddedColumns) * low / 8};
}

CodePlanes code_planes(const WeightView& weight) {
  CodePlanes planes = code_planes(weight.scheme, weight.rows, weight.columns);
  if (weight.high_at != 0) planes.high_at = weight.high_at;
  return planes;
}

PlaneBytes plane_bytes(const QuantScheme& scheme, ActKind act, std::int64_t rows,
                       std::int64_t columns) {
  PlaneBytes bytes;
  const auto bits = static_cast<std::uint64_t>(scheme.bits);
  if (scheme.is_float()) {
    bytes.codes = static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(columns) * bits / 8;
    return bytes;
  }
  const auto padded_rows = static_cast<std::uint64_t>(round_up(rows, kPanelRows));
  const auto padded_columns = static_cast<std::uint64_t>(round_up(columns, kPaddedColumns));
  const bool grouped = scheme.scaling == Scaling::group;
  const std::uint64_t scales =
      grouped ? padded_rows * (padded_columns / static_cast<std::uint64_t>(scheme.group))
              : padded_rows;
  bytes.codes = padded_rows * padded_columns / 8 * bits;
  if (const CodeFormat* format = code_format(scheme.kind)) {
    const PlaneBytes own =
        format->planes(round_up(rows, kPanelRows), round_up(columns, kPaddedColumns));
    bytes.scales = own.scales;
    bytes.zeros = own.zeros;
    return bytes;
  }
  bytes.scales = scales * (grouped ? 2 : 4);
  if (scheme.kind == CodeKind::uint_) bytes.zeros = scales;
  if (!scheme.is_offset() && is_coded(act)) {
    const auto group = static_cast<std::uint64_t>(sum_group(scheme, act, columns));
    bytes.sums = sums_are_per_row(scheme, act) ? padded_rows * 4
                                               : padded_rows * (padded_columns / group) * 2;
  }
  return bytes;
}

std::uint64_t stored_bytes(const WeightView& weight) {
  const PlaneBytes planes = plane_bytes(weight.scheme, weight.act, weight.rows, weight.columns);
  return planes.codes + planes.scales + planes.zeros + planes.sums;
}

namespace {

template <class T>
const T* moved(const T* plane, std::uint64_t bytes) {
  if (plane == nullptr) return nullptr;
  return static_cast<const T*>(static_cast<const void*>(
      static_cast<const std::byte*>(static_cast<const void*>(plane)) + bytes));
}

}  // namespace

WeightView slice_rows(const WeightView& weight, const Slice& rows) {
  ensure(rows.first >= 0 && rows.first <= rows.last && rows.last <= weight.rows &&
             (rows.first % kPanelRows == 0 || rows.empty()) &&
             (rows.last % kPanelRows == 0 || rows.last == weight.rows || rows.empty()),
         "weight: rows ", rows.first, " to ", rows.last, " of ", weight.rows,
         " are no run of whole panels of ", kPanelRows);
  WeightView slice = weight;
  slice.rows = rows.count();
  if (rows.empty()) return slice;
  // Bytes that the rows before the slice take in each plane.
  const PlaneBytes before = plane_bytes(weight.scheme, weight.act, rows.first, weight.columns);
  const CodePlanes planes = code_planes(weight);
  if (planes.high_bits > 0) {
    const auto one_bit = static_cast<std::int64_t>(before.codes) / weight.scheme.bits;
    slice.codes = weight.codes + planes.low_bits * one_bit;
    slice.high_at = planes.high_at + (planes.high_bits - planes.low_bits) * one_bit;
  } else {
    slice.codes = weight.codes + before.codes;
  }
  slice.scales = moved(weight.scales, before.scales);
  // The zeros of b1 are bits of columns, which all rows share.
  if (weight.scheme.kind != CodeKind::b1) slice.zeros = moved(weight.zeros, before.zeros);
  slice.sums = moved(weight.sums, before.sums);
  return slice;
}

}  // namespace leq
