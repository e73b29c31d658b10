// Which rows of the weights a block of a tiled matmul has, and where they lie in shared memory so
// that lanes meet different banks.
#pragma once

#include "cuda/kernels/launch.h"
#include "cuda/words/simt.h"

namespace leq::LEQ_GPU {

// Where a row's 16 bytes `chunk` of `chunks` lie in shared memory: permuted so that the eight rows
// that ldmatrix reads at once, and neighbouring chunks of a row, lie in different banks. Of an odd
// number they do as they are.
template <int chunks>
__device__ __forceinline__ int swizzled(int row, int chunk) {
  if constexpr (chunks % 2 == 1) return (row * chunks + chunk) * 16;
  constexpr int kRowsOfLine = 8 / chunks;  // 128 bytes
  return (row * chunks + (chunk ^ row / kRowsOfLine % chunks)) * 16;
}

// The rows of a block's tile.
template <class Shape, class Arguments = IntMatmul>
struct GemmRows {
  bool paired;
  int segment;          // with paired: of gate, up follows
  int first;            // row of the tile's first
  std::int64_t column;  // of the output, where it goes
  std::int64_t first_token;

  __device__ __forceinline__ explicit GemmRows(const Arguments& a)
      : GemmRows(a, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y)) {}
  // `tile`: of the rows of all segments.
  __device__ __forceinline__ GemmRows(const Arguments& a, int token_tile, int tile)
      : paired(a.finish == Finish::swiglu),
        segment(0),
        column(0),
        first_token(std::int64_t{token_tile} * Shape::kTokens) {
    while (!paired && segment + 1 < a.segment_count) {
      const auto rows = static_cast<int>(a.segments[segment].rows);
      const int tiles = (rows + Shape::kRows - 1) / Shape::kRows;
      if (tile < tiles) break;
      tile -= tiles;
      column += rows;
      ++segment;
    }
    first = tile * (paired ? Shape::kRows / 2 : Shape::kRows);
    column += first;
  }

  // Row `n` of the tile: in its segment, counted from `first`.
  __device__ __forceinline__ int offset(int n) const { return paired ? n / 16 * 8 + n % 8 : n; }
  __device__ __forceinline__ const auto& of(const Arguments& a, int n) const {
    return a.segments[paired ? n / 8 % 2 : segment];
  }
};

// Blocks of a launch: tokens in x, so that those that share weights run side by side.
template <class Shape, class Arguments>
dim3 tiles_of(const Arguments& a) {
  const bool paired = a.finish == Finish::swiglu;
  const int rows_of_tile = paired ? Shape::kRows / 2 : Shape::kRows;
  std::int64_t tiles = 0;
  for (int i = 0; i < (paired ? 1 : a.segment_count); ++i) {
    tiles += (a.segments[i].rows + rows_of_tile - 1) / rows_of_tile;
  }
  const std::int64_t token_tiles = (a.tokens + Shape::kTokens - 1) / Shape::kTokens;
  return dim3(static_cast<unsigned>(token_tiles), static_cast<unsigned>(tiles));
}

}  // namespace leq::LEQ_GPU
