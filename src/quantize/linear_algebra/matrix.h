// Dense linear algebra for second-order methods: X^T X, a triangular factor, products; and the
// layouts of their matrices. Work is cut into fixed tiles, and each element is a fixed sequence of
// fused multiply-adds (tile_kernels.h), so that results do not depend on the number of threads or
// the instruction set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/huge_pages.h"
#include "base/thread_pool.h"
#include "quantize/linear_algebra/tile_kernels.h"
#include "ranks/communicator.h"

namespace leq {

// Number of panels of rows that one task processes, in blocks of columns. These panels share each
// read of the factor or of H.
inline constexpr std::int64_t kTaskPanels = 2;
inline constexpr std::int64_t kBlockDepth = kTileDepth;

// Interleaved rows of a matrix: the rows of a panel are the lanes of vectors, so that one
// instruction processes one column of all these rows.

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

// The lower triangle of a square matrix, in a layout for factoring in place: panels of 24 columns,
// each stored with its rows from the diagonal down, one panel after another.

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

// A matrix in the layout that tile products read as their broadcast operand, and the product of its
// columns with lanes.

// F [K][J] in blocks of 128 rows, each stored as slices [128][8] of 8 columns. Padding of the last
// block and slice is 0. Blocks that are never written take no physical memory.
class SlicedMatrix {
 public:
  SlicedMatrix() = default;
  SlicedMatrix(std::int64_t rows, std::int64_t columns)
      : slices_((columns + kTileRows - 1) / kTileRows),
        buffer_(static_cast<std::uint64_t>((rows + kTileDepth - 1) / kTileDepth * kTileDepth *
                                           slices_ * kTileRows) *
                    sizeof(float),
                "a matrix in slices") {}

  float& at(std::int64_t row, std::int64_t column) {
    return reinterpret_cast<float*>(buffer_.data())[index(row, column)];
  }
  // Rows of 8 numbers from `row` to the end of its block; `column` must be a multiple of 8.
  const float* slice(std::int64_t row, std::int64_t column) const {
    return reinterpret_cast<const float*>(buffer_.data()) + index(row, column);
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
template <class Rows, class Value>
SlicedMatrix slice_columns(std::int64_t n, ThreadPool& pool, const Rows& rows, const Value& value) {
  SlicedMatrix sliced(n, n);
  pool.run((n + kTileRows - 1) / kTileRows, [&](std::int64_t task, int) {
    const std::int64_t first = task * kTileRows, last = std::min(n, first + kTileRows);
    for (std::int64_t block = 0; block < rows(last - 1); block += kTileDepth) {
      float* const to = &sliced.at(block, first);
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
struct LaneProduct {
  IndexRange depth, columns;
  const LanePanels<float>& b;  // [p][k - b_first]
  std::int64_t b_first = 0;
  LanePanels<float>& c;  // [p][j - columns.first + c_first]
  std::int64_t c_first = 0;
  std::int64_t panels = 0;
};
void add_lane_product(const SlicedMatrix& f, const LaneProduct& product);

// Division of the tiles of X^T X among several ranks.

// Index of a rank among `count` ranks that divide the tiles. One rank computes each element.
struct TileShare {
  std::int64_t index = 0, count = 1;
};

// A tile of X^T X [K][K]: rows [top, bottom) and columns [left, right) of the upper triangle. A
// tile on the diagonal also includes its part of the lower triangle.
struct TileCorners {
  std::int64_t top = 0, bottom = 0, left = 0, right = 0;
};
std::vector<TileCorners> tiles_of(std::int64_t columns, const TileShare& share);

// Copies a tile of the upper triangle, transposed, into the lower triangle.
void mirror(const TileCorners& tile, std::int64_t columns, std::span<double> h);

// h [K][K] += X^T X for x [T][K], both triangles, for the tiles of `share`. Products are summed in
// f32 within shards of 2,048 rows, and the shards are added in double in order. The same sequence
// of calls therefore gives the same h.
void add_outer_products(std::span<const float> x, std::int64_t tokens, std::int64_t columns,
                        std::span<double> h, ThreadPool& pool, const TileShare& share = {});
// Replaces the lower triangle of the symmetric `a` by L with a = L^T L. Returns false, with `a`
// undefined, if `a` is not positive definite: the square of a diagonal element of L is below 1e-10
// of a's. Several ranks divide the work: all pass the same `a`, and all receive L.
bool factor_lower(LowerMatrix& a, ThreadPool& pool, Communicator& ranks = one_rank());

// Solves A x = b for a small positive definite a [n][n]; overwrites `a`, and replaces b in `x` by
// the solution. Single-threaded. Returns false if `a` is not positive definite.
bool solve_positive(std::span<double> a, std::span<double> x);

// A row-major view of a block of a larger matrix.
template <class Real>
struct Block {
  Real* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;  // distance between rows
};

// c += a b, single-threaded.
void add_product(Block<const float> a, Block<const float> b, Block<float> c);
void add_product(Block<const double> a, Block<const double> b, Block<double> c);

}  // namespace leq
