// The division of a linear's outputs into tiles of `rows` rows. A tile has rows of one weight; if
// gated half of them are rows of gate, and half the same rows of up.
#pragma once

#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

// The number of tiles of all segments.
template <class Arguments>
std::int64_t row_tiles(const Arguments& a, int rows) {
  if (is_gated(a.finish)) return div_up(a.segments[0].rows, rows / 2);
  std::int64_t tiles = 0;
  for (int i = 0; i < a.segment_count; ++i) tiles += div_up(a.segments[i].rows, rows);
  return tiles;
}

// Tile number `tile` of these.
struct RowTile {
  bool paired;              // gated
  int segment = 0;          // if paired gate's; up is the next
  int first;                // first row in the segment
  std::int64_t column = 0;  // output column of row `first`

  template <class Arguments>
  __device__ __forceinline__ RowTile(const Arguments& a, int tile, int rows)
      : paired(is_gated(a.finish)) {
    while (!paired && segment + 1 < a.segment_count) {
      const auto of_segment = static_cast<int>(a.segments[segment].rows);
      const int tiles = (of_segment + rows - 1) / rows;
      if (tile < tiles) break;
      tile -= tiles;
      column += of_segment;
      ++segment;
    }
    first = tile * (paired ? rows / 2 : rows);
    column += first;
  }
};

}  // namespace leq::LEQ_GPU
