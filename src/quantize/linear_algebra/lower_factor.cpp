// Triangular factor A = L^T L of a positive definite matrix, by Cholesky's algorithm from the last
// row up. Rows are processed in blocks of 120, each solved and then subtracted from the rows above.
// Ranks divide the 120 x 120 squares that blocks of rows and columns form. Each element is computed
// by a single rank until its row is solved and sent to all ranks.
#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "comm/division.h"
#include "quantize/linear_algebra/dense.h"
#include "quantize/linear_algebra/lower_matrix.h"
#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {
namespace {

constexpr std::int64_t kLanes = LowerMatrix::kLanes;
constexpr std::int64_t kBlockRows = 120;  // a multiple of panels and tiles, at most kTileDepth
constexpr std::int64_t kBlockPanels = kBlockRows / kLanes;
constexpr std::int64_t kPairRows = 2 * kBlockRows;
constexpr double kSmallestPivot = 1e-10;
constexpr std::string_view kSite = "the factor of X^T X";

static_assert(kBlockRows % kLanes == 0 && kBlockRows % kTileRows == 0 && kLanes % kTileRows == 0 &&
              kBlockRows <= kTileDepth);

struct RowRange {
  std::int64_t first = 0, last = 0;
};

// First row of the block that contains the row; blocks start at multiples of 120.
std::int64_t block_start(std::int64_t row) { return row / kBlockRows * kBlockRows; }

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Processes blocks in pairs: subtracts the later block from the earlier one, then both from all
// rows above, which halves the passes over those rows. Task 0 of either step also factors the next
// corner while other threads continue with the subtraction.
class LowerFactor {
 public:
  LowerFactor(LowerMatrix& a, ThreadPool& pool, Communicator& ranks)
      : a_(a),
        pool_(pool),
        ranks_(ranks),
        kernels_(tile_kernels()),
        triangles_(at(kBlockRows * kTileRows)) {
    for (std::int64_t i = 0; i < a.rows(); ++i) diagonal_.push_back(a.at(i, i));
  }

  bool run() {
    RowRange block = {block_start(a_.rows() - 1), a_.rows()};
    std::int64_t unsubtracted = block.last;  // end of the rows not yet subtracted from those above
    bool positive = !is_own(block.first, block.first) || factor_corner(block);
    while (share_corner(block, positive)) {
      if (block.first == 0) return true;
      solve_left(block);
      share_row(block);
      const RowRange next = {block.first - kBlockRows, block.first};
      const bool whole_pair = next.last % kPairRows == 0;
      const std::int64_t top = whole_pair ? 0 : next.first;
      positive = subtract({block.first, unsubtracted}, {top, next.last});
      if (whole_pair) unsubtracted = next.last;
      block = next;
    }
    return false;
  }

 private:
  // Squares are assigned round-robin, row by row from the top. In any row, and in all rows above it
  // together, the counts of two ranks therefore differ by at most one.
  int owner(std::int64_t row, std::int64_t left) const {
    const std::int64_t block = row / kBlockRows;
    return static_cast<int>((block * (block + 1) / 2 + left / kBlockRows) % ranks_.size());
  }
  bool is_own(std::int64_t row, std::int64_t left) const {
    return owner(row, left) == ranks_.rank();
  }

  // Address of column i in the rows from k on, which a product kernel broadcasts.
  const double* column(std::int64_t i, std::int64_t k) const {
    return a_.row(i / kLanes, k) + i % kLanes;
  }

  // In rows [row, row + 8) of a panel, subtracts the products with the later rows of the block.
  void subtract_rows_behind(std::int64_t panel, std::int64_t row, std::int64_t block_end) {
    const std::int64_t below = row + kTileRows;
    if (below == block_end) return;
    kernels_.add_product_f64({.a = column(row, below),
                              .a_stride = kLanes,
                              .b = a_.row(panel, below),
                              .depth = block_end - below,
                              .c = a_.row(panel, row),
                              .c_stride = kLanes,
                              .sign = -1});
  }

  double* triangle(std::int64_t row) {
    return triangles_.data() + (row - block_start(row)) * kTileRows;
  }

  // Factors the 8 x 8 triangle on the diagonal in rows [row, row + 8), for the solve kernel.
  bool factor_triangle(std::int64_t row) {
    double l[kTileRows][kTileRows] = {};
    for (std::int64_t k = 0; k < kTileRows; ++k) {
      for (std::int64_t i = 0; i <= k; ++i) l[k][i] = a_.at(row + k, row + i);
    }
    double* out = triangle(row);
    for (std::int64_t k = kTileRows - 1; k >= 0; --k) {
      const double square = l[k][k];
      if (!(square >= kSmallestPivot * diagonal_[at(row + k)] && square > 0)) return false;
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

  void solve_rows(std::int64_t panel, std::int64_t row, std::int64_t block_end) {
    subtract_rows_behind(panel, row, block_end);
    kernels_.solve(triangle(row), a_.row(panel, row));
  }

  // Factors the square of a block on the diagonal (its corner).
  bool factor_corner(RowRange block) {
    for (std::int64_t row = block.last - kTileRows; row >= block.first; row -= kTileRows) {
      const std::int64_t last = row / kLanes;
      subtract_rows_behind(last, row, block.last);
      if (!factor_triangle(row)) return false;
      kernels_.solve(triangle(row), a_.row(last, row));
      for (std::int64_t panel = block.first / kLanes; panel < last; ++panel)
        solve_rows(panel, row, block.last);
    }
    return true;
  }

  // Solves a block's rows in the columns left of its corner.
  void solve_left(RowRange block) {
    std::vector<std::int64_t> panels;
    for (std::int64_t panel = 0; panel < block.first / kLanes; ++panel) {
      if (is_own(block.first, panel * kLanes)) panels.push_back(panel);
    }
    pool_.run(std::ssize(panels), [&](std::int64_t task, int) {
      const std::int64_t panel = panels[at(task)];
      for (std::int64_t row = block.last - kTileRows; row >= block.first; row -= kTileRows)
        solve_rows(panel, row, block.last);
    });
  }

  // a[j][i] -= sum over k in `depth` of L[k][j] L[k][i], for i <= j and j in `rows` (whole blocks
  // above `depth`). Also factors the corner of the last block of `rows`.
  bool subtract(RowRange depth, RowRange rows) {
    std::vector<RowRange> squares;  // first row and first column of each square
    for (std::int64_t row = rows.last - kBlockRows; row >= rows.first; row -= kBlockRows) {
      for (std::int64_t left = row; left >= 0; left -= kBlockRows) {
        if (is_own(row, left)) squares.push_back({row, left});
      }
    }
    const RowRange corner = {rows.last - kBlockRows, rows.last};
    const bool corner_is_own = is_own(corner.first, corner.first);
    bool positive = true;
    pool_.run(std::ssize(squares), [&](std::int64_t task, int) {
      const auto [row, left] = squares[at(task)];
      for (std::int64_t k = block_start(depth.last - 1); k >= depth.first; k -= kBlockRows)
        subtract_square({k, std::min(depth.last, k + kBlockRows)}, row, left);
      if (task == 0 && corner_is_own) positive = factor_corner(corner);
    });
    return positive;
  }

  static OwnedRows owned(int owner, double* numbers, std::int64_t count) {
    return {.owner = owner,
            .data = reinterpret_cast<std::byte*>(numbers),
            .bytes = at(count) * sizeof(double)};
  }

  // Broadcasts the corner's factor. Returns whether the corner was positive definite.
  bool share_corner(RowRange block, bool positive) {
    if (ranks_.size() == 1) return positive;
    double has_factor = positive ? 1 : 0;
    const int of = owner(block.first, block.first);
    std::vector<OwnedRows> parts = {owned(of, &has_factor, 1),
                                    owned(of, triangles_.data(), std::ssize(triangles_))};
    for (std::int64_t panel = block.first / kLanes; panel * kLanes < block.last; ++panel) {
      const std::int64_t first = panel * kLanes;
      parts.push_back(owned(of, a_.row(panel, first), (block.last - first) * kLanes));
    }
    gather_owned(ranks_, parts, kSite);
    return has_factor == 1;
  }

  // Gathers the block's solved columns left of its corner on all ranks.
  void share_row(RowRange block) {
    if (ranks_.size() == 1) return;
    std::vector<OwnedRows> parts;
    for (std::int64_t panel = 0; panel < block.first / kLanes; ++panel) {
      parts.push_back(owned(owner(block.first, panel * kLanes), a_.row(panel, block.first),
                            (block.last - block.first) * kLanes));
    }
    gather_owned(ranks_, parts, kSite);
  }

  // Subtracts from [row, row + 120) x [left, left + 120), or from its part below the diagonal.
  void subtract_square(RowRange depth, std::int64_t row, std::int64_t left) {
    TileProduct<double> tile = {
        .a_stride = kLanes, .depth = depth.last - depth.first, .c_stride = kLanes, .sign = -1};
    for (std::int64_t panel = left / kLanes; panel < left / kLanes + kBlockPanels; ++panel) {
      tile.b = a_.row(panel, depth.first);
      for (std::int64_t j = std::max(row, panel * kLanes); j < row + kBlockRows; j += kTileRows) {
        tile.a = column(j, depth.first);
        tile.next_a = tile.a + kTileRows;
        tile.c = a_.row(panel, j);
        kernels_.add_product_f64(tile);
      }
    }
  }

  LowerMatrix& a_;
  ThreadPool& pool_;
  Communicator& ranks_;
  const TileKernels& kernels_;
  std::vector<double> diagonal_;
  std::vector<double> triangles_;  // [block / 8][8][8] for the solve kernel
};

}  // namespace

bool factor_lower(LowerMatrix& a, ThreadPool& pool, Communicator& ranks) {
  return a.size() == 0 || LowerFactor(a, pool, ranks).run();
}

}  // namespace leq
