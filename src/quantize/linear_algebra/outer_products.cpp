// X^T X: tokens are packed once into panels of 48 columns. Tiles of the upper triangle are products
// of two of these panels, because both operands of a product have this layout.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/huge_pages.h"
#include "quantize/linear_algebra/dense.h"
#include "quantize/linear_algebra/lanes.h"
#include "quantize/linear_algebra/tile_kernels.h"

namespace leq {
namespace {

constexpr std::int64_t kShardTokens = 2048;
constexpr std::int64_t kSumLanes = kPanelLanes<float>;
constexpr std::int64_t kTilePanels = 8;  // panels per tile edge; f32 sums take 590 KB
constexpr std::int64_t kTileColumns = kTilePanels * kSumLanes;

// The tokens of a shard, packed as [T / 128][panels][128][48].
class PackedTokens {
 public:
  PackedTokens(std::int64_t most_tokens, std::int64_t columns)
      : columns_(columns),
        panels_((columns + kSumLanes - 1) / kSumLanes),
        buffer_(static_cast<std::uint64_t>((most_tokens + kTileDepth - 1) / kTileDepth * panels_ *
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

}  // namespace leq
