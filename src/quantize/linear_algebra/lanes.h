// Interleaved rows of a matrix: the rows of a panel are the lanes of vectors, so that one
// instruction processes one column of all these rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {

// Number of panels of rows that one task processes, in blocks of columns. These panels share each
// read of the factor or of H.
inline constexpr std::int64_t kTaskPanels = 2;
inline constexpr std::int64_t kBlockColumns = kTileDepth;

// One column of a panel, aligned to 64 bytes.
template <class Real>
struct alignas(64) LaneRow {
  Real lanes[kPanelLanes<Real>] = {};
};

// Panels of interleaved rows: [panels][columns][lanes].
template <class Real>
class LanePanels {
 public:
  LanePanels() = default;
  LanePanels(std::int64_t panels, std::int64_t columns)
      : columns_(columns), rows_(static_cast<std::size_t>(panels * columns)) {}

  std::int64_t columns() const { return columns_; }
  Real* at(std::int64_t panel, std::int64_t column) {
    return rows_[static_cast<std::size_t>(panel * columns_ + column)].lanes;
  }
  const Real* at(std::int64_t panel, std::int64_t column) const {
    return rows_[static_cast<std::size_t>(panel * columns_ + column)].lanes;
  }

 private:
  std::int64_t columns_ = 0;
  std::vector<LaneRow<Real>> rows_;
};

inline constexpr std::int64_t kRotatedColumns = 16;  // columns transposed at once: they fit in L1

// to [columns][lanes] = transpose of from [count][columns]; lanes from `count` on are unchanged.
template <class From, class To>
void rows_to_lanes(const From* from, std::int64_t stride, std::int64_t count, std::int64_t columns,
                   To* to, std::int64_t lanes) {
  for (std::int64_t first = 0; first < columns; first += kRotatedColumns) {
    const std::int64_t last = std::min(columns, first + kRotatedColumns);
    for (std::int64_t row = 0; row < count; ++row) {
      for (std::int64_t k = first; k < last; ++k)
        to[k * lanes + row] = static_cast<To>(from[row * stride + k]);
    }
  }
}

// The inverse of rows_to_lanes.
template <class Number>
void lanes_to_rows(const Number* from, std::int64_t lanes, std::int64_t count, std::int64_t columns,
                   Number* to, std::int64_t stride) {
  for (std::int64_t first = 0; first < columns; first += kRotatedColumns) {
    const std::int64_t last = std::min(columns, first + kRotatedColumns);
    for (std::int64_t row = 0; row < count; ++row) {
      for (std::int64_t k = first; k < last; ++k) to[row * stride + k] = from[k * lanes + row];
    }
  }
}

}  // namespace leq
