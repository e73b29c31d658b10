// Division of the tiles of X^T X among several ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace leq {

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

}  // namespace leq
