// A matrix in the layout that tile products read as their broadcast operand, and the product of its
// columns with lanes.
#pragma once

#include <cstdint>

#include "base/huge_pages.h"
#include "base/thread_pool.h"
#include "quantize/linear_algebra/lanes.h"
#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {

// F [K][J] in blocks of 128 rows, each stored as slices [128][8] of 8 columns. Padding of the last
// block and slice is 0. Blocks that are never written take no physical memory.
template <class Real>
class SlicedMatrix {
 public:
  SlicedMatrix() = default;
  SlicedMatrix(std::int64_t rows, std::int64_t columns)
      : slices_((columns + kTileRows - 1) / kTileRows),
        buffer_(static_cast<std::uint64_t>((rows + kTileDepth - 1) / kTileDepth * kTileDepth *
                                           slices_ * kTileRows) *
                    sizeof(Real),
                "a matrix in slices") {}

  Real& at(std::int64_t row, std::int64_t column) {
    return reinterpret_cast<Real*>(buffer_.data())[index(row, column)];
  }
  // Rows of 8 numbers from `row` to the end of its block; `column` must be a multiple of 8.
  const Real* slice(std::int64_t row, std::int64_t column) const {
    return reinterpret_cast<const Real*>(buffer_.data()) + index(row, column);
  }

 private:
  std::int64_t index(std::int64_t row, std::int64_t column) const {
    const std::int64_t slice = row / kTileDepth * slices_ + column / kTileRows;
    return (slice * kTileDepth + row % kTileDepth) * kTileRows + column % kTileRows;
  }

  std::int64_t slices_ = 0;
  HugeBuffer buffer_;
};

// Sets F[k][j] = value(k, j) for k < rows(j); the rest of each column stays 0.
template <class Real, class Rows, class Value>
SlicedMatrix<Real> slice_columns(std::int64_t n, ThreadPool& pool, const Rows& rows,
                                 const Value& value) {
  SlicedMatrix<Real> sliced(n, n);
  pool.run((n + kTileRows - 1) / kTileRows, [&](std::int64_t task, int) {
    const std::int64_t first = task * kTileRows, last = std::min(n, first + kTileRows);
    for (std::int64_t block = 0; block < rows(last - 1); block += kTileDepth) {
      Real* const to = &sliced.at(block, first);
      for (std::int64_t j = first; j < last; ++j) {
        const std::int64_t end = std::min(rows(j), block + kTileDepth);
        for (std::int64_t k = block; k < end; ++k)
          to[(k - block) * kTileRows + j - first] = value(k, j);
      }
    }
  });
  return sliced;
}

struct IndexRange {
  std::int64_t first = 0, last = 0;
};

// c[p][j] += sum over k in `depth` of F[k][j] b[p][k], in each lane of each panel p, for j in
// `columns` (which start at a multiple of 8). c's first row is column columns.first; c is allocated
// up to whole slices. Sums are split at F's block boundaries.
template <class Real>
struct LaneProduct {
  IndexRange depth, columns;
  const LanePanels<Real>& b;  // [p][k - b_first]
  std::int64_t b_first = 0;
  LanePanels<Real>& c;  // [p][j - columns.first + c_first]
  std::int64_t c_first = 0;
  std::int64_t panels = 0;
};
template <class Real>
void add_lane_product(const SlicedMatrix<Real>& f, const LaneProduct<Real>& product);

}  // namespace leq
