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

// The upper triangle's numbers of h in the tiles of a share, one after the other, and back into
// both triangles. Throws Error where `numbers` are not as many.
std::vector<double> tiles_of(std::span<const double> h, std::int64_t columns,
                             const TileShare& share);
void put_tiles(std::span<const double> numbers, std::span<double> h, std::int64_t columns,
               const TileShare& share);

}  // namespace leq
