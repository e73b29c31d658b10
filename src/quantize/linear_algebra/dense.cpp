#include "quantize/linear_algebra/dense.h"

#include <algorithm>
#include <cmath>

#include "quantize/linear_algebra/lanes.h"
#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {
namespace {

constexpr std::int64_t kRowsAtOnce = 192;  // rows of a per block; 98 KB of f32 at depth 128
constexpr std::int64_t kPanelsAtOnce = 8;  // panels of b per block; 196 KB

// One block of a product, sized for the L2 cache: at most 192 rows, depth 128, 8 panels wide.
template <class Real>
class PackedProduct {
 public:
  PackedProduct() : a_(at(kRowsAtOnce * kTileDepth)), b_(kPanelsAtOnce, kTileDepth) {}

  // Packs b's rows from `first` and columns from `left` on into panels.
  void take_right(const Block<const Real>& b, std::int64_t first, std::int64_t left) {
    depth_ = std::min(kTileDepth, b.rows - first);
    columns_ = std::min(kPanelsAtOnce * kLanes, b.columns - left);
    for (std::int64_t k = 0; k < depth_; ++k) {
      const Real* from = b.data + (first + k) * b.stride + left;
      for (std::int64_t j = 0; j < columns_; j += kLanes)
        std::copy_n(from + j, std::min(kLanes, columns_ - j), b_.at(j / kLanes, k));
    }
  }

  // Packs a's rows from `top`, columns from `first` on as slices [depth][8]; pads are undefined.
  void take_left(const Block<const Real>& a, std::int64_t top, std::int64_t first) {
    rows_ = std::min(kRowsAtOnce, a.rows - top);
    for (std::int64_t row = 0; row < rows_; ++row) {
      const Real* from = a.data + (top + row) * a.stride + first;
      Real* to = slice(row / kTileRows * kTileRows) + row % kTileRows;
      for (std::int64_t k = 0; k < depth_; ++k) to[k * kTileRows] = from[k];
    }
  }

  // Adds the block's product to c, whose first element `c` points to.
  void add_to(Real* c, std::int64_t stride) {
    const auto add = product_kernel<Real>();
    for (std::int64_t j = 0; j < columns_; j += kLanes) {
      const std::int64_t width = std::min(kLanes, columns_ - j);
      for (std::int64_t row = 0; row < rows_; row += kTileRows) {
        TileProduct<Real> tile = {.a = slice(row),
                                  .a_stride = kTileRows,
                                  .b = b_.at(j / kLanes, 0),
                                  .depth = depth_,
                                  .c = c + row * stride + j,
                                  .c_stride = stride};
        const std::int64_t height = std::min(kTileRows, rows_ - row);
        if (width == kLanes && height == kTileRows) {
          add(tile);
        } else {
          add_edge(tile, height, width);
        }
      }
    }
  }

 private:
  static constexpr std::int64_t kLanes = kPanelLanes<Real>;
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  Real* slice(std::int64_t row) { return a_.data() + row * kTileDepth; }

  static void add_edge(TileProduct<Real> tile, std::int64_t height, std::int64_t width) {
    LaneRow<Real> sums[kTileRows];
    Real* const c = tile.c;
    const std::int64_t stride = tile.c_stride;
    tile.c = sums[0].lanes;
    tile.c_stride = kLanes;
    product_kernel<Real>()(tile);
    for (std::int64_t i = 0; i < height; ++i) {
      for (std::int64_t j = 0; j < width; ++j) c[i * stride + j] += sums[i].lanes[j];
    }
  }

  std::vector<Real> a_;
  LanePanels<Real> b_;
  std::int64_t depth_ = 0, rows_ = 0, columns_ = 0;
};

template <class Real>
void add_blocks(const Block<const Real>& a, const Block<const Real>& b, const Block<Real>& c) {
  PackedProduct<Real> part;
  for (std::int64_t left = 0; left < c.columns; left += kPanelsAtOnce * kPanelLanes<Real>) {
    for (std::int64_t k = 0; k < a.columns; k += kTileDepth) {
      part.take_right(b, k, left);
      for (std::int64_t top = 0; top < c.rows; top += kRowsAtOnce) {
        part.take_left(a, top, k);
        part.add_to(c.data + top * c.stride + left, c.stride);
      }
    }
  }
}

}  // namespace

void add_product(Block<const float> a, Block<const float> b, Block<float> c) {
  add_blocks(a, b, c);
}

void add_product(Block<const double> a, Block<const double> b, Block<double> c) {
  add_blocks(a, b, c);
}

bool solve_positive(std::span<double> a, std::span<double> x) {
  const std::int64_t n = std::ssize(x);
  // Solves L y = x in the loop that computes the factor a = L L^T.
  for (std::int64_t i = 0; i < n; ++i) {
    double* row = a.data() + i * n;
    for (std::int64_t j = 0; j <= i; ++j) {
      const double* other = a.data() + j * n;
      double sum = row[j];
      for (std::int64_t k = 0; k < j; ++k) sum -= row[k] * other[k];
      if (j < i) {
        row[j] = sum / other[j];
      } else if (sum > 0) {
        row[j] = std::sqrt(sum);
      } else {
        return false;
      }
    }
    double sum = x[static_cast<std::size_t>(i)];
    for (std::int64_t k = 0; k < i; ++k) sum -= row[k] * x[static_cast<std::size_t>(k)];
    x[static_cast<std::size_t>(i)] = sum / row[i];
  }
  for (std::int64_t i = n - 1; i >= 0; --i) {
    const double* row = a.data() + i * n;
    const double value = x[static_cast<std::size_t>(i)] /= row[i];
    for (std::int64_t k = 0; k < i; ++k) x[static_cast<std::size_t>(k)] -= row[k] * value;
  }
  return true;
}

}  // namespace leq
