// The rows of weights that a block of a tiled matmul processes, the copies of these rows to shared
// memory, and their layout there, in which lanes access different banks.
#pragma once

#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/matmul/row_tiles.cuh"

namespace leq::LEQ_GPU {

// Offset in shared memory of chunk `chunk` (16 bytes) of a row with `chunks` chunks. Chunks are
// permuted so that the eight rows that ldmatrix reads at once, and neighbouring chunks of a row,
// are in different banks. With an odd number of chunks no permutation is needed.
template <int chunks>
__device__ __forceinline__ int swizzled(int row, int chunk) {
  if constexpr (chunks % 2 == 1) return (row * chunks + chunk) * 16;
  constexpr int kRowsOfLine = 8 / chunks;  // a line is 128 bytes
  return (row * chunks + (chunk ^ row / kRowsOfLine % chunks)) * 16;
}

// A thread's share of the copies of a K tile: 16 bytes of kEach rows, at `passes` offsets in each
// row. The distance between its rows keeps the swizzle the same. Values that the K loop needs are
// opaque to the compiler, which would otherwise recompute them for each K tile.
template <int rows, int chunks, int threads, int passes = 1>
struct RowCopies {
  // With three chunks per row a quarter of the threads is idle.
  static constexpr int kAtOnce = threads / (chunks == 3 ? 4 : chunks);
  static constexpr int kStep = kAtOnce < rows ? kAtOnce : rows, kEach = rows / kStep;
  static constexpr int kRowBytes = chunks * passes * 16;  // bytes of a row in a K tile
  static_assert(kStep * kEach == rows && kEach <= 16);
  const std::byte* from;  // first row, in K tile 0
  int pieces[kEach];      // offset of each row from `from`, in units of 16 bytes
  int valid;              // bit i: row i exists
  int to;                 // offset of the first row in shared memory

  static __device__ __forceinline__ int row() { return static_cast<int>(threadIdx.x / chunks); }
  static __device__ __forceinline__ int chunk() { return static_cast<int>(threadIdx.x % chunks); }

  // The thread's first row begins at `first` and is copied to `place`; each further row begins
  // step_bytes after the preceding one. Row i exists if has(i).
  template <class Has>
  __device__ __forceinline__ RowCopies(const std::byte* first, int step_bytes, int place, Has has)
      : from(ptx::opaque(first)), to(ptx::opaque(static_cast<unsigned>(place))) {
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      bits |= (has(i) ? 1u : 0u) << i;
      pieces[i] = ptx::opaque(static_cast<unsigned>(i * (step_bytes / 16)));
    }
    valid = ptx::opaque(bits);
  }

  // Missing rows are not read, so their addresses need not be valid.
  __device__ __forceinline__ void load(unsigned char* rows_of_k_tile, int k_tile,
                                       bool there = true) const {
    if (kStep * chunks < threads && threadIdx.x >= kStep * chunks) return;
    const std::byte* const first =
        ptx::moved<kRowBytes>(from, ptx::opaque(static_cast<unsigned>(k_tile)));
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const std::byte* const begin = i == 0 ? first : ptx::moved<16>(first, pieces[i]);
#pragma unroll
      for (int pass = 0; pass < passes; ++pass) {
        ptx::cp_async16(rows_of_k_tile + to + i * kStep * kRowBytes + pass * chunks * 16,
                        begin + pass * chunks * 16, there && (valid >> i & 1) != 0);
      }
    }
  }
};

// The copies of a tile's inputs: `tokens` rows that are `stride` numbers apart.
template <class Shape, int chunks, int passes = 1>
struct InputCopies : RowCopies<Shape::kTokens, chunks, Shape::kThreads, passes> {
  template <class T>
  __device__ __forceinline__ InputCopies(const T* inputs, std::int64_t stride,
                                         std::int64_t first_token, std::int64_t tokens, int place)
      : InputCopies(inputs, stride, place, first_token + InputCopies::row(), tokens, sizeof(T)) {}

 private:
  template <class T>
  __device__ __forceinline__ InputCopies(const T* inputs, std::int64_t stride, int place,
                                         std::int64_t first, std::int64_t tokens, int bytes)
      : InputCopies::RowCopies(
            reinterpret_cast<const std::byte*>(inputs + first * stride) + InputCopies::chunk() * 16,
            InputCopies::kStep * static_cast<int>(stride) * bytes, place,
            [&](int i) { return first + i * InputCopies::kStep < tokens; }) {}
};

// The copies of a tile's weights: rows of row_bytes; begin(segment) is the address of row 0.
template <class Shape, int chunks>
struct SegmentCopies : RowCopies<Shape::kRows, chunks, Shape::kThreads> {
  template <class Arguments, class Rows, class Begin>
  __device__ __forceinline__ SegmentCopies(const Arguments& a, const Rows& rows, int row_bytes,
                                           int place, Begin begin)
      : SegmentCopies(
            rows.of(a, SegmentCopies::row()), begin, rows.first + rows.offset(SegmentCopies::row()),
            // If gated, 16 rows of a tile are eight rows of each segment.
            rows.paired ? SegmentCopies::kStep / 2 : SegmentCopies::kStep, row_bytes, place) {}

 private:
  template <class Segment, class Begin>
  __device__ __forceinline__ SegmentCopies(const Segment& segment, Begin begin, int first, int step,
                                           int row_bytes, int place)
      : SegmentCopies::RowCopies(static_cast<const std::byte*>(begin(segment)) +
                                     std::int64_t{first} * row_bytes + SegmentCopies::chunk() * 16,
                                 step * row_bytes, place,
                                 [&](int i) { return first + i * step < segment.rows; }) {}
};

// The rows of the weights, and the tokens, of a block's tile.
template <class Shape>
struct GemmRows : RowTile {
  std::int64_t first_token;

  template <class Arguments>
  __device__ __forceinline__ explicit GemmRows(const Arguments& a)
      : GemmRows(a, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y)) {}
  // `tile` is an index among the tiles of all segments.
  template <class Arguments>
  __device__ __forceinline__ GemmRows(const Arguments& a, int token_tile, int tile)
      : RowTile(a, tile, Shape::kRows), first_token(std::int64_t{token_tile} * Shape::kTokens) {}

  // Returns row `n` of the tile as a row of its segment, relative to `first`.
  __device__ __forceinline__ int offset(int n) const { return paired ? n / 16 * 8 + n % 8 : n; }
  template <class Arguments>
  __device__ __forceinline__ const auto& of(const Arguments& a, int n) const {
    return a.segments[paired ? n / 8 % 2 : segment];
  }
};

// The grid of a launch. Tokens are in x, so that blocks that share weights run concurrently.
template <class Shape, class Arguments>
dim3 tiles_of(const Arguments& a) {
  return rt::grid(div_up(a.tokens, Shape::kTokens), row_tiles(a, Shape::kRows));
}

}  // namespace leq::LEQ_GPU
