// Which rows of the weights a block of a tiled matmul has, how they come to shared memory, and
// where they lie there so that lanes meet different banks.
#pragma once

#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/simt.h"
#include "cuda/kernels/launch.h"

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

// A thread's share of the copies of a K tile: 16 bytes of kEach rows, so many apart that they are
// swizzled alike, and in `passes` places of each row. What the loop over K tiles needs is kept as
// it is found before it: the compiler would find it anew for each K tile.
template <int rows, int chunks, int threads, int passes = 1>
struct RowCopies {
  // Of three chunks a quarter of the threads has none.
  static constexpr int kAtOnce = threads / (chunks == 3 ? 4 : chunks);
  static constexpr int kStep = kAtOnce < rows ? kAtOnce : rows, kEach = rows / kStep;
  static constexpr int kRowBytes = chunks * passes * 16;  // of a K tile
  static_assert(kStep * kEach == rows && kEach <= 16);
  const std::byte* from;  // its first row's, of K tile 0
  int pieces[kEach];      // of 16 bytes, from there to each row's
  int valid;              // bit i: row i is there
  int to;                 // where its first row's go

  static __device__ __forceinline__ int row() { return static_cast<int>(threadIdx.x / chunks); }
  static __device__ __forceinline__ int chunk() { return static_cast<int>(threadIdx.x % chunks); }

  // The thread's first row begins at `first` and goes to `place`, each other lies step_bytes after
  // the one before it; row i is there if has(i).
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

  // What is not there is not read, wherever its address points.
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

// The same of a tile's inputs: rows that begin `stride` numbers apart, of which there are `tokens`.
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

// And of its weights, whose rows are of row_bytes; begin(segment): where the first of them lies.
template <class Shape, int chunks>
struct SegmentCopies : RowCopies<Shape::kRows, chunks, Shape::kThreads> {
  template <class Arguments, class Rows, class Begin>
  __device__ __forceinline__ SegmentCopies(const Arguments& a, const Rows& rows, int row_bytes,
                                           int place, Begin begin)
      : SegmentCopies(
            rows.of(a, SegmentCopies::row()), begin, rows.first + rows.offset(SegmentCopies::row()),
            // 16 rows of a tile are eight of each segment with swiglu.
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
