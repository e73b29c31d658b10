// The triangular factor A = L^T L of a positive definite matrix: Cholesky's algorithm from the last
// row up, in blocks of 120 rows, of which each is solved for and then subtracted from what is left.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "quantize/dense.h"
#include "quantize/lanes.h"
#include "quantize/tile_kernels.h"

namespace leq {
namespace {

constexpr std::int64_t kLanes = kPanelLanes<double>;
constexpr std::int64_t kBlockRows = 120;  // whole panels, whole tiles, at most kTileDepth
constexpr std::int64_t kBlockPanels = kBlockRows / kLanes;
constexpr std::int64_t kTaskPanels = 2;    // of rows to solve
constexpr std::int64_t kUpdateRows = 48;  // of what is left, a task
constexpr double kSmallestPivot = 1e-10;

static_assert(kBlockRows % kLanes == 0 && kBlockRows % kTileRows == 0 && kLanes % kTileRows == 0 &&
              kBlockRows <= kTileDepth && kUpdateRows % kTileRows == 0);

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

class LowerFactor {
 public:
  LowerFactor(std::span<double> a, std::int64_t n, ThreadPool& pool)
      : a_(a.data()),
        n_(n),
        pool_(pool),
        kernels_(tile_kernels()),
        panels_((n + kLanes - 1) / kLanes, kBlockRows),
        triangles_(at(kBlockRows * kTileRows)) {
    for (std::int64_t i = 0; i < n; ++i) diagonal_.push_back(a_[i * n + i]);
  }

  bool run() {
    for (std::int64_t first = (n_ - 1) / kBlockRows * kBlockRows; first >= 0; first -= kBlockRows) {
      first_ = first;
      count_ = std::min(kBlockRows, n_ - first);
      if (!factor_corner()) return false;
      const std::int64_t left = first / kLanes;
      pool_.run((left + kTaskPanels - 1) / kTaskPanels, [&](std::int64_t task, int) {
        const std::int64_t last = std::min(left, (task + 1) * kTaskPanels);
        for (std::int64_t panel = task * kTaskPanels; panel < last; ++panel) solve_panel(panel);
      });
      subtract_block();
    }
    return true;
  }

 private:
  // Rows of the block, in whole tiles: those behind the matrix are rows of the identity.
  std::int64_t tile_rows() const { return (count_ + kTileRows - 1) / kTileRows * kTileRows; }

  void read_panel(std::int64_t panel) {
    const std::int64_t left = panel * kLanes, width = std::min(kLanes, n_ - left);
    for (std::int64_t k = 0; k < tile_rows(); ++k) {
      double* to = panels_.at(panel, k);
      std::fill_n(to, kLanes, 0.0);
      if (k < count_) {
        std::copy_n(a_ + (first_ + k) * n_ + left, width, to);
      } else if (first_ + k >= left && first_ + k < left + kLanes) {
        to[first_ + k - left] = 1.0;
      }
    }
  }

  void write_panel(std::int64_t panel) {
    const std::int64_t left = panel * kLanes, width = std::min(kLanes, n_ - left);
    for (std::int64_t k = 0; k < count_; ++k)
      std::copy_n(panels_.at(panel, k), width, a_ + (first_ + k) * n_ + left);
  }

  // Where the column of the block's row k lies in the panels: the broadcast side of a product.
  const double* column_of(std::int64_t k, std::int64_t depth) const {
    return panels_.at((first_ + k) / kLanes, depth) + (first_ + k) % kLanes;
  }

  // Rows [row, row + 8) of a panel minus what the rows behind them explain.
  void subtract_rows_behind(std::int64_t panel, std::int64_t row) {
    const std::int64_t behind = row + kTileRows;
    if (behind == tile_rows()) return;
    kernels_.add_product_f64({.a = column_of(row, behind),
                              .a_stride = kLanes,
                              .b = panels_.at(panel, behind),
                              .depth = tile_rows() - behind,
                              .c = panels_.at(panel, row),
                              .c_stride = kLanes,
                              .sign = -1});
  }

  double* triangle(std::int64_t row) { return triangles_.data() + row * kTileRows; }

  // The 8 x 8 corner of rows [row, row + 8), for the kernel that solves with it.
  bool factor_triangle(std::int64_t row) {
    double l[kTileRows][kTileRows] = {};
    for (std::int64_t k = 0; k < kTileRows; ++k) {
      for (std::int64_t i = 0; i <= k; ++i) l[k][i] = column_of(row, row + k)[i];
    }
    double* out = triangle(row);
    for (std::int64_t k = kTileRows - 1; k >= 0; --k) {
      const double square = l[k][k];
      const bool inside = row + k < count_;
      const double least = inside ? kSmallestPivot * diagonal_[at(first_ + row + k)] : 0.0;
      if (!(square >= least && square > 0)) return false;
      const double inverse = 1.0 / std::sqrt(square);
      out[k * kTileRows + k] = inverse;
      for (std::int64_t i = 0; i < k; ++i) l[k][i] *= inverse;
      for (std::int64_t i = 0; i < k; ++i) {
        out[k * kTileRows + i] = -l[k][i];
        for (std::int64_t j = 0; j <= i; ++j) l[i][j] -= l[k][i] * l[k][j];
      }
    }
    return true;
  }

  bool factor_corner() {
    const std::int64_t panel = first_ / kLanes, panels = (count_ + kLanes - 1) / kLanes;
    for (std::int64_t p = panel; p < panel + panels; ++p) read_panel(p);
    for (std::int64_t row = tile_rows() - kTileRows; row >= 0; row -= kTileRows) {
      const std::int64_t last = (first_ + row) / kLanes;
      subtract_rows_behind(last, row);
      if (!factor_triangle(row)) return false;
      for (std::int64_t p = panel; p <= last; ++p) {
        if (p != last) subtract_rows_behind(p, row);
        kernels_.solve(triangle(row), panels_.at(p, row));
      }
    }
    for (std::int64_t p = panel; p < panel + panels; ++p) write_panel(p);
    return true;
  }

  void solve_panel(std::int64_t panel) {
    read_panel(panel);
    for (std::int64_t row = tile_rows() - kTileRows; row >= 0; row -= kTileRows) {
      subtract_rows_behind(panel, row);
      kernels_.solve(triangle(row), panels_.at(panel, row));
    }
    write_panel(panel);
  }

  // a[j][i] -= the sum over the block's rows k of L[k][j] L[k][i], for i <= j < first.
  void subtract_block() {
    const std::int64_t tasks = (first_ + kUpdateRows - 1) / kUpdateRows;
    pool_.run(tasks, [&](std::int64_t task, int) {
      const std::int64_t first = (tasks - 1 - task) * kUpdateRows;  // long rows first
      const std::int64_t last = std::min(first_, first + kUpdateRows);
      TileProduct<double> tile = {.a_stride = kLanes, .depth = count_, .c_stride = n_, .sign = -1};
      for (std::int64_t left = 0; left < last; left += kLanes) {
        tile.b = panels_.at(left / kLanes, 0);
        const std::int64_t from = std::max(first, left);
        for (std::int64_t row = from; row < last; row += kTileRows) {
          tile.a = panels_.at(row / kLanes, 0) + row % kLanes;
          tile.next_a = tile.a + kTileRows;
          tile.c = a_ + row * n_ + left;
          kernels_.add_product_f64(tile);
        }
      }
    });
  }

  double* a_;
  std::int64_t n_;
  ThreadPool& pool_;
  const TileKernels& kernels_;
  std::vector<double> diagonal_;
  LanePanels<double> panels_;      // the block's rows
  std::vector<double> triangles_;  // [block / 8][8][8]
  std::int64_t first_ = 0, count_ = 0;
};

}  // namespace

bool factor_lower(std::span<double> a, std::int64_t n, ThreadPool& pool) {
  require(std::ssize(a) == n * n, "factor: expected ", n, " squared values, found ", a.size());
  return n == 0 || LowerFactor(a, n, pool).run();
}

}  // namespace leq
