// The output of a tile of int_gemm_wgmma: a warp converts the sums of its 16 rows, 32 tokens at a
// time, which are staged in shared memory.
#pragma once

#include "cuda/kernels/matmul/int_wgmma_tiles.cuh"

namespace leq::LEQ_GPU {

// A lane has one row and every second token. If gated it has a row of gate, the corresponding row
// of up, and every fourth token.
template <class Shape, Finish how>
struct WarpFinish {
  using Memory = HopperMemory<Shape>;
  static constexpr bool kPaired = is_gated(how), kGrouped = Shape::kGroup != 0;
  static constexpr bool kRowZeros = Shape::kMayHaveZeros && !kGrouped;  // zeros of uint8
  static constexpr int kWidth = kPaired ? 8 : Memory::kOutRows, kStep = 32 / kWidth;
  static constexpr int kTogether = 8;  // tokens that are read before one is written
  static_assert(Memory::kOutTokens % (kTogether * kStep) == 0);

  const IntMatmul& a;
  int column, first;   // the lane's column and first token in shared memory
  std::int64_t token;  // token `first` of the tile's first 32
  std::int64_t to;     // output column
  bool has_row;
  RowFinish row, up;
  int zero[2] = {};  // zero points of row and of up

  __device__ __forceinline__ WarpFinish(const IntMatmul& arguments, const GemmRows<Shape>& rows,
                                        int warp, int lane)
      : WarpFinish(arguments, rows, arguments.segments[kPaired ? 0 : rows.segment],
                   arguments.segments[kPaired ? 1 : rows.segment], warp * 16 + lane % kWidth,
                   lane) {}

  // Values for a token's output. Those of kTogether tokens are read before the first is written.
  struct Read {
    float scale = 1, before = 0;
    int sum = 0;  // sum of the token's codes
  };

  // Writes the 32 tokens of the tile that begin at token `from`.
  __device__ __forceinline__ void write(int from, const int* out) const {
    if (!has_row) return;
    const std::int64_t next = token + from;
    const int left = static_cast<int>(min(a.tokens - next, std::int64_t{Memory::kOutTokens}));
#pragma unroll 1
    for (int t = 0; t < Memory::kOutTokens; t += kTogether * kStep) {
      Read read[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (t + i * kStep < left) read[i] = read_of(next + t + i * kStep);
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int at = t + i * kStep;
        if (at < left) put(next + at, out + (first + at) * Memory::kOutStride + column, read[i]);
      }
    }
  }

 private:
  __device__ __forceinline__ WarpFinish(const IntMatmul& arguments, const GemmRows<Shape>& rows,
                                        const CodeSegment& segment, const CodeSegment& other,
                                        int tile_row, int lane)
      : WarpFinish(arguments, rows, segment, other, tile_row, lane,
                   rows.first + rows.offset(tile_row)) {}
  // n is a row of the segment; past the last row, the last row is read instead.
  __device__ __forceinline__ WarpFinish(const IntMatmul& arguments, const GemmRows<Shape>& rows,
                                        const CodeSegment& segment, const CodeSegment& other,
                                        int tile_row, int lane, int n)
      : a(arguments),
        column(lane % kWidth),
        first(lane / kWidth),
        token(rows.first_token + lane / kWidth),
        to(rows.column + rows.offset(tile_row)),
        has_row(n < segment.rows),
        row(segment, min(n, static_cast<int>(segment.rows) - 1)),
        up(other, min(n, static_cast<int>(other.rows) - 1)) {
    if (!kRowZeros || !has_row) return;
    zero[0] = segment.weight.zeros[n] - 128;
    if (kPaired) zero[1] = other.weight.zeros[n] - 128;
  }

  __device__ __forceinline__ Read read_of(std::int64_t at) const {
    Read read;
    read.scale = row_scale_of(a, at);
    if (how == Finish::add) read.before = a.out.values[at * a.out.stride + to];
    if (kRowZeros) read.sum = a.x.sums[at * a.x.sum_stride];
    return read;
  }
  // `sums` points to the row's sum; the sum of up is eight numbers further on.
  __device__ __forceinline__ void put(std::int64_t at, const int* sums, const Read& read) const {
    const float y = row.value(read.scale, number(sums[0], zero[0], read));
    float u = 0;
    if constexpr (kPaired) u = up.value(read.scale, number(sums[8], zero[1], read));
    a.out.values[at * a.out.stride + to] = finished(how, y, u, read.before);
  }
  // The sum over the columns. `bits`: with groups the bits of a float, else the row's int32 sum.
  __device__ __forceinline__ float number(int bits, int less, const Read& read) const {
    if constexpr (kGrouped) return __int_as_float(bits);
    return static_cast<float>(bits - less * read.sum);
  }
};

}  // namespace leq::LEQ_GPU
