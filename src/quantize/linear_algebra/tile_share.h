// X^T X divided among several, by the tiles that it is computed in.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace leq {

// One of `count` who divide the tiles of X^T X among them: each number is one's alone.
struct TileShare {
  std::int64_t index = 0, count = 1;
};

// Numbers of X^T X [K][K] by rows and columns [first, last); the upper triangle's, where rows and
// columns are the same also the lower one's.
struct TileCorners {
  std::int64_t top = 0, bottom = 0, left = 0, right = 0;
};
std::vector<TileCorners> tiles_of(std::int64_t columns, const TileShare& share);

// Into the lower triangle what a tile has in the upper one.
void mirror(const TileCorners& tile, std::int64_t columns, std::span<double> h);

}  // namespace leq
