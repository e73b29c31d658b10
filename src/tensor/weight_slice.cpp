#include "tensor/weight_slice.h"

#include "base/error.h"

namespace leq {
namespace {

// Whether zeros are bits of columns, which all rows share (b1: salient columns).
bool zeros_are_of_columns(const WeightView& weight) { return weight.scheme.kind == CodeKind::b1; }

template <class T>
const T* moved(const T* plane, std::uint64_t bytes) {
  if (plane == nullptr) return nullptr;
  return reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(plane) + bytes);
}

const void* moved(const void* plane, std::uint64_t bytes) {
  return moved(static_cast<const std::byte*>(plane), bytes);
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
  if (!zeros_are_of_columns(weight)) slice.zeros = moved(weight.zeros, before.zeros);
  slice.sums = moved(weight.sums, before.sums);
  return slice;
}

}  // namespace leq
