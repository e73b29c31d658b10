// f32 activations times f32 weights. Every output is the chain of docs/numerics.md with 16 lanes
// (column % 16), bit-identical to the CPU: each of four threads has four lanes of a row's chain.
// Weights and inputs pass through shared memory, chunks of columns ahead of their use, because the
// chains of few rows have too few threads to wait for loads.
#pragma once

#include "cuda/intrinsics/reduce.cuh"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/matmul/matmul_finish.cuh"
#include "cuda/kernels/matmul/row_tiles.cuh"

namespace leq::LEQ_GPU {

// A block has `rows` rows of weights (if gated, rows of gate and up alternate) and `groups` x
// `each` tokens; a thread has the tokens of one group. A stage has `columns` columns.
template <int rows, int groups, int each, int columns, int stages>
struct FloatShape {
  static constexpr int kRows = rows, kEach = each, kTokens = groups * each, kColumns = columns;
  static constexpr int kStages = stages, kThreads = 128, kUsed = 4 * rows * groups;
  static constexpr int kStride = columns + 16;  // 2 rows of 4 threads read different banks
  static constexpr int kStage = (rows + kTokens) * kStride;
  static constexpr int kBytes = stages * kStage * static_cast<int>(sizeof(float));
  static_assert(kUsed <= kThreads && columns % 16 == 0);
};
// Few rows per block, so that a router's 128 rows are on 32 multiprocessors. All of 2,048 columns
// of one token are in flight at once.
using OneFloatToken = FloatShape<4, 1, 1, 256, 9>;
using FewFloatTokens = FloatShape<4, 8, 1, 256, 4>;
using ManyFloatTokens = FloatShape<32, 1, 8, 128, 3>;

// The rows of a block: of one segment, or of gate and up.
template <class Shape>
struct FloatBlock : RowTile {
  const FloatMatmul& a;
  std::int64_t first_token = std::int64_t{blockIdx.y} * Shape::kTokens;
  int columns, tokens;  // padded columns; tokens of the block
  float* memory;

  __device__ __forceinline__ FloatBlock(const FloatMatmul& of, float* shared)
      : RowTile(of, static_cast<int>(blockIdx.x), Shape::kRows), a(of), memory(shared) {
    columns = static_cast<int>(float_stride(a.columns));
    tokens = static_cast<int>(min(std::int64_t{Shape::kTokens}, a.tokens - first_token));
  }

  __device__ __forceinline__ const FloatSegment& of(int row) const {
    return a.segments[paired ? row % 2 : segment];
  }
  __device__ __forceinline__ std::int64_t at(int row) const {
    return first + (paired ? row / 2 : row);
  }
  __device__ __forceinline__ float* stage(int chunk) const {
    return memory + chunk % Shape::kStages * Shape::kStage;
  }

  // Starts copying the chunk's columns of `count` rows; row i begins at from(i).
  template <class From>
  __device__ __forceinline__ void load(int chunk, float* to, int count, From from) const {
    constexpr int kPieces = Shape::kColumns / 4;
    for (int i = static_cast<int>(threadIdx.x); i < count * kPieces; i += Shape::kThreads) {
      const int piece = i % kPieces * 4, place = chunk * Shape::kColumns + piece;
      if (place >= columns) continue;
      ptx::cp_async16(to + i / kPieces * Shape::kStride + piece, from(i / kPieces) + place, true);
    }
  }
  __device__ __forceinline__ void load_weights(int chunk) const {
    load(chunk, stage(chunk), Shape::kRows, [&](int row) {
      const std::int64_t n = min(at(row), of(row).rows - 1);
      return static_cast<const float*>(of(row).weight.values) + n * columns;
    });
  }
  __device__ __forceinline__ void load_tokens(int chunk) const {
    load(chunk, stage(chunk) + Shape::kRows * Shape::kStride, tokens,
         [&](int token) { return a.values.values + (first_token + token) * a.values.stride; });
    ptx::cp_async_commit();
  }
};

// Adds the 16 lanes of a row's chain over its four threads, in the order +8, +4, +2, +1.
__device__ __forceinline__ float chain_total(const float (&lanes)[4]) {
  float sums[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[i] = lanes[i] + __shfl_xor_sync(kEveryLane, lanes[i], 2);
    sums[i] = sums[i] + __shfl_xor_sync(kEveryLane, sums[i], 1);
  }
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

// Multiplies `blocks` blocks of 16 columns of a row and of its tokens; thread q of the row's four
// has columns 4 q ... 4 q + 3 of each.
template <class Shape>
__device__ __forceinline__ void multiply_chunk(const float* row, const float* tokens, int blocks,
                                               float (&lanes)[Shape::kEach][4]) {
#pragma unroll 4
  for (int block = 0; block < blocks; ++block) {
    const float4 w = *reinterpret_cast<const float4*>(row + block * 16);
#pragma unroll
    for (int t = 0; t < Shape::kEach; ++t) {
      const float4 x = *reinterpret_cast<const float4*>(tokens + t * Shape::kStride + block * 16);
      lanes[t][0] = fmaf(x.x, w.x, lanes[t][0]);
      lanes[t][1] = fmaf(x.y, w.y, lanes[t][1]);
      lanes[t][2] = fmaf(x.z, w.z, lanes[t][2]);
      lanes[t][3] = fmaf(x.w, w.w, lanes[t][3]);
    }
  }
}

// Block x has rows of one segment (if gated, rows of gate and of up), block y has tokens.
template <class Shape>
__device__ __forceinline__ void float_rows_block(const FloatMatmul& a) {
  LEQ_DYNAMIC_SHARED(float, memory);
  const FloatBlock<Shape> block(a, memory);
  constexpr int kAhead = Shape::kStages - 1, kBlocks = Shape::kColumns / 16;
  const int blocks = static_cast<int>((a.columns + 15) / 16);
  for (int chunk = 0; chunk < kAhead; ++chunk) block.load_weights(chunk);
  ptx::wait_for_predecessor();
  for (int chunk = 0; chunk < kAhead; ++chunk) block.load_tokens(chunk);
  // Threads without a row repeat one of the first group; they store nothing.
  const int thread = static_cast<int>(threadIdx.x) % Shape::kUsed, quad = thread % 4;
  const int row = thread / 4 % Shape::kRows, group = thread / (4 * Shape::kRows);
  const int own = row * Shape::kStride + quad * 4;
  const int tokens = (Shape::kRows + group * Shape::kEach) * Shape::kStride + quad * 4;
  float lanes[Shape::kEach][4] = {};
  for (int chunk = 0; chunk * kBlocks < blocks; ++chunk) {
    ptx::cp_async_wait<Shape::kStages - 2>();
    __syncthreads();  // the stage is visible to all threads, and the one before it is free
    block.load_weights(chunk + kAhead);
    block.load_tokens(chunk + kAhead);
    const float* const stage = block.stage(chunk);
    multiply_chunk<Shape>(stage + own, stage + tokens, min(kBlocks, blocks - chunk * kBlocks),
                          lanes);
  }
  ptx::let_successor_start();
  const FloatSegment& segment = block.of(row);
  const std::int64_t n = block.at(row);
  const float bias = segment.bias != nullptr && n < segment.rows ? segment.bias[n] : 0.0f;
#pragma unroll
  for (int t = 0; t < Shape::kEach; ++t) {
    float y = chain_total(lanes[t]);
    if (segment.bias != nullptr) y = y + bias;
    const float up = __shfl_xor_sync(kEveryLane, y, 4);  // of the next row
    const int token = group * Shape::kEach + t;
    if (t % 4 != quad || token >= block.tokens || n >= segment.rows) continue;
    if (threadIdx.x >= Shape::kUsed || (block.paired && row % 2 != 0)) continue;
    finish(a.finish, a.out, block.first_token + token, block.column + n - block.first, y, up);
  }
}

// Calls launch(Shape, blocks) with the shape for the number of tokens.
template <class Launch>
void for_float_rows(const FloatMatmul& a, Launch launch) {
  const auto with = [&]<class Shape>(Shape shape) {
    launch(shape, rt::grid(row_tiles(a, Shape::kRows), div_up(a.tokens, Shape::kTokens)));
  };
  if (a.tokens == 1) return with(OneFloatToken());
  if (a.tokens <= FewFloatTokens::kTokens) return with(FewFloatTokens());
  with(ManyFloatTokens());
}

}  // namespace leq::LEQ_GPU
