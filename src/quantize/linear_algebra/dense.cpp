#include "quantize/linear_algebra/matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/huge_pages.h"
#include "quantize/linear_algebra/tile_kernels.h"
#include "ranks/communicator.h"

namespace leq {

void add_lane_product(const SlicedMatrix& f, const LaneProduct& product) {
  const auto add = tile_kernels().add_product_f32;
  const auto& [depth, columns, b, b_first, c, c_first, panels] = product;
  for (std::int64_t k = depth.first; k < depth.last;) {
    const std::int64_t end = std::min(depth.last, (k / kTileDepth + 1) * kTileDepth);
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      TileProduct<float> tile = {.a_stride = kTileRows,
                                 .b = b.at(panel, k - b_first),
                                 .depth = end - k,
                                 .c_stride = kPanelLanes<float>};
      const float* const ahead =
          panel + 1 < panels || end == depth.last ? nullptr : f.slice(end, columns.first);
      for (std::int64_t j = columns.first; j < columns.last; j += kTileRows) {
        tile.a = f.slice(k, j);
        tile.next_a = j + kTileRows < columns.last ? f.slice(k, j + kTileRows) : ahead;
        tile.c = c.at(panel, j - columns.first + c_first);
        add(tile);
      }
    }
    k = end;
  }
}

// X^T X: tokens are packed once into panels of 48 columns. Tiles of the upper triangle are products
// of two of these panels, because both operands of a product have this layout.

namespace {

constexpr std::int64_t kShardTokens = 2048;
constexpr std::int64_t kSumLanes = kPanelLanes<float>;
constexpr std::int64_t kTilePanels = 8;  // panels per tile edge; f32 sums take 590 KB
constexpr std::int64_t kTileColumns = kTilePanels * kSumLanes;

// The tokens of a shard, packed as [T / 128][panels][128][48].
class PackedTokens {
 public:
  PackedTokens(std::int64_t max_tokens, std::int64_t columns)
      : columns_(columns),
        panels_((columns + kSumLanes - 1) / kSumLanes),
        buffer_(static_cast<std::uint64_t>((max_tokens + kTileDepth - 1) / kTileDepth * panels_ *
                                           kTileDepth) *
                    kPanelBytes,
                "X^T X") {}

  std::int64_t panels() const { return panels_; }
  std::int64_t tokens() const { return tokens_; }
  const float* at(std::int64_t token, std::int64_t panel) const {
    return reinterpret_cast<const float*>(buffer_.data()) + index(token, panel);
  }

  void take(const float* x, std::int64_t tokens, ThreadPool& pool) {
    tokens_ = tokens;
    pool.run((tokens + kTileDepth - 1) / kTileDepth, [&](std::int64_t task, int) {
      const std::int64_t first = task * kTileDepth;
      const std::int64_t last = std::min(tokens, first + kTileDepth);
      for (std::int64_t token = first; token < last; ++token) take_row(x, token);
    });
  }

 private:
  std::int64_t index(std::int64_t token, std::int64_t panel) const {
    const std::int64_t block = token / kTileDepth;
    return ((block * panels_ + panel) * kTileDepth + token % kTileDepth) * kSumLanes;
  }

  void take_row(const float* x, std::int64_t token) {
    const float* from = x + token * columns_;
    float* const data = reinterpret_cast<float*>(buffer_.data());
    std::int64_t panel = 0;
    for (; (panel + 1) * kSumLanes <= columns_; ++panel)
      std::memcpy(data + index(token, panel), from + panel * kSumLanes, kPanelBytes);
    if (panel < panels_)
      std::copy(from + panel * kSumLanes, from + columns_, data + index(token, panel));
  }

  std::int64_t columns_, panels_, tokens_ = 0;
  HugeBuffer buffer_;
};

// A tile of X^T X given by its first row panel and column panel, row <= column.
struct ProductTile {
  std::int64_t row = 0, column = 0;
};

// Tiles on the diagonal are last: they take half the time, which balances the threads at the end.
std::vector<ProductTile> upper_tiles(std::int64_t panels, const TileShare& share) {
  std::vector<ProductTile> tiles;
  std::int64_t number = 0;
  for (std::int64_t apart = panels - 1; apart >= 0; --apart) {
    for (std::int64_t row = 0; row + apart < panels; ++row) {
      if (row % kTilePanels != 0 || (row + apart) % kTilePanels != 0) continue;
      if (number++ % share.count == share.index) tiles.push_back({row, row + apart});
    }
  }
  return tiles;
}

// Computes the f32 sums of a tile over the shard: sums [column panel][row].
void sum_tile(const PackedTokens& x, ProductTile at, LanePanels<float>& sums) {
  const std::int64_t rows = std::min(kTilePanels, x.panels() - at.row);
  const std::int64_t columns = std::min(kTilePanels, x.panels() - at.column);
  const auto add = tile_kernels().add_product_f32;
  for (std::int64_t token = 0; token < x.tokens(); token += kTileDepth) {
    TileProduct<float> tile = {.a_stride = kSumLanes,
                               .depth = std::min(kTileDepth, x.tokens() - token),
                               .c_stride = kSumLanes};
    for (std::int64_t j = 0; j < columns; ++j) {
      tile.b = x.at(token, at.column + j);
      for (std::int64_t i = 0; i < rows && at.row + i <= at.column + j; ++i) {
        for (std::int64_t row = 0; row < kSumLanes; row += kTileRows) {
          tile.a = x.at(token, at.row + i) + row;
          tile.next_a = tile.a + kTileRows;
          tile.c = sums.at(j, i * kSumLanes + row);
          add(tile);
        }
      }
    }
  }
}

// Adds the tile to h row by row, then mirrors it below the diagonal. Mirroring handles eight rows
// at a time, so that memory is accessed in runs of adjacent cache lines.
void add_tile(const LanePanels<float>& sums, ProductTile at, std::int64_t columns, double* h) {
  const std::int64_t top = at.row * kSumLanes, left = at.column * kSumLanes;
  const std::int64_t bottom = std::min(columns, top + kTileColumns);
  const std::int64_t right = std::min(columns, left + kTileColumns);
  for (std::int64_t i = top; i < bottom; ++i) {
    for (std::int64_t j = std::max(i, left); j < right;) {
      const std::int64_t panel = (j - left) / kSumLanes,
                         end = std::min(right, left + (panel + 1) * kSumLanes);
      const float* const from = sums.at(panel, i - top) - left - panel * kSumLanes;
      for (; j < end; ++j) h[i * columns + j] += static_cast<double>(from[j]);
    }
  }
  for (std::int64_t j = left; j < right; j += kTileRows) {
    const std::int64_t end = std::min(right, j + kTileRows);
    const std::int64_t panel = (j - left) / kSumLanes;
    for (std::int64_t i = top; i < std::min(bottom, end); ++i) {
      const float* const from = sums.at(panel, i - top) - left - panel * kSumLanes;
      for (std::int64_t row = std::max(j, i + 1); row < end; ++row)
        h[row * columns + i] += static_cast<double>(from[row]);
    }
  }
}

}  // namespace

std::vector<TileCorners> tiles_of(std::int64_t columns, const TileShare& share) {
  std::vector<TileCorners> corners;
  for (const ProductTile at : upper_tiles((columns + kSumLanes - 1) / kSumLanes, share)) {
    const std::int64_t top = at.row * kSumLanes, left = at.column * kSumLanes;
    corners.push_back(
        {top, std::min(columns, top + kTileColumns), left, std::min(columns, left + kTileColumns)});
  }
  return corners;
}

void mirror(const TileCorners& tile, std::int64_t columns, std::span<double> h) {
  if (tile.top == tile.left) return;
  double* const data = h.data();
  for (std::int64_t i = tile.top; i < tile.bottom; i += kTileRows) {
    const std::int64_t end = std::min(tile.bottom, i + kTileRows);
    for (std::int64_t j = tile.left; j < tile.right; ++j) {
      for (std::int64_t row = i; row < end; ++row)
        data[j * columns + row] = data[row * columns + j];
    }
  }
}

void add_outer_products(std::span<const float> x, std::int64_t tokens, std::int64_t columns,
                        std::span<double> h, ThreadPool& pool, const TileShare& share) {
  ensure(std::ssize(x) == tokens * columns && std::ssize(h) == columns * columns,
         "X^T X: expected ", tokens, " x ", columns, " inputs and ", columns,
         " squared sums, found ", x.size(), " and ", h.size());
  if (tokens == 0 || columns == 0) return;
  PackedTokens packed(std::min(tokens, kShardTokens), columns);
  const std::vector<ProductTile> tiles = upper_tiles(packed.panels(), share);
  for (std::int64_t first = 0; first < tokens; first += kShardTokens) {
    packed.take(x.data() + first * columns, std::min(kShardTokens, tokens - first), pool);
    pool.run(std::ssize(tiles), [&](std::int64_t task, int) {
      const ProductTile at = tiles[static_cast<std::size_t>(task)];
      LanePanels<float> sums(kTilePanels, kTileColumns);
      sum_tile(packed, at, sums);
      add_tile(sums, at, columns, h.data());
    });
  }
}

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

// Triangular factor A = L^T L of a positive definite matrix, by Cholesky's algorithm from the last
// row up. Rows are processed in blocks of 120, each solved and then subtracted from the rows above.
// Ranks divide the 120 x 120 squares that blocks of rows and columns form. Each element is computed
// by a single rank until its row is solved and sent to all ranks.

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
  void subtract_later_rows(std::int64_t panel, std::int64_t row, std::int64_t block_end) {
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
    subtract_later_rows(panel, row, block_end);
    kernels_.solve(triangle(row), a_.row(panel, row));
  }

  // Factors the square of a block on the diagonal (its corner).
  bool factor_corner(RowRange block) {
    for (std::int64_t row = block.last - kTileRows; row >= block.first; row -= kTileRows) {
      const std::int64_t last = row / kLanes;
      subtract_later_rows(last, row, block.last);
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
