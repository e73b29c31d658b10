// The lower triangle of a square matrix, in a layout for factoring in place: panels of 24 columns,
// each stored with its rows from the diagonal down, one panel after another.
#pragma once

#include <cstdint>

#include "base/huge_pages.h"
#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {

// An [n][n] matrix of entries (i, j) with j <= i, initially 0. Padding rows up to whole tiles are
// rows of the identity. Takes about 4 n^2 bytes.
class LowerMatrix {
 public:
  static constexpr std::int64_t kLanes = kPanelLanes<double>;

  explicit LowerMatrix(std::int64_t n)
      : size_(n),
        rows_((n + kTileRows - 1) / kTileRows * kTileRows),
        buffer_(static_cast<std::uint64_t>(start(panels()) + kLanes) * sizeof(double),
                "the factor of X^T X") {
    for (std::int64_t i = n; i < rows_; ++i) at(i, i) = 1.0;
  }

  std::int64_t size() const { return size_; }
  std::int64_t rows() const { return rows_; }  // including padding rows
  std::int64_t panels() const { return (rows_ + kLanes - 1) / kLanes; }

  double& at(std::int64_t i, std::int64_t j) { return row(j / kLanes, i)[j % kLanes]; }
  double at(std::int64_t i, std::int64_t j) const { return row(j / kLanes, i)[j % kLanes]; }
  // [24] entries of row i in a panel, for i >= 24 * panel. The following rows are adjacent in
  // memory. Entries right of the diagonal are undefined.
  double* row(std::int64_t panel, std::int64_t i) {
    return reinterpret_cast<double*>(buffer_.data()) + index(panel, i);
  }
  const double* row(std::int64_t panel, std::int64_t i) const {
    return reinterpret_cast<const double*>(buffer_.data()) + index(panel, i);
  }

 private:
  // The panels before this one have rows_, rows_ - 24, ... rows.
  std::int64_t start(std::int64_t panel) const {
    return (panel * rows_ - panel * (panel - 1) / 2 * kLanes) * kLanes;
  }
  std::int64_t index(std::int64_t panel, std::int64_t i) const {
    return start(panel) + (i - panel * kLanes) * kLanes;
  }

  std::int64_t size_, rows_;
  HugeBuffer buffer_;
};

}  // namespace leq
