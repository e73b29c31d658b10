// Up to 8 tokens of f32 activations times 16-bit floats or codes; bandwidth-bound on weights. The
// warps of a block take blocks of 128 columns in turn and write sums to shared memory, where one
// thread per output adds them in ascending order, as in the chain of float_gemm.cu.
#pragma once

#include "cuda/kernels/matmul/float_weights.cuh"
#include "cuda/kernels/matmul/matmul_finish.cuh"

namespace leq::LEQ_GPU {

// The shape of a block. The ring buffer of each warp holds `stages` blocks of 128 columns.
template <int row_tiles, int stages>
struct FloatGemvShape {
  static constexpr int kTokens = 8, kRowTiles = row_tiles, kRows = 16 * row_tiles;
  static constexpr int kStages = stages, kWarps = 8, kThreads = 32 * kWarps;
  static constexpr int kOutputs = kRows * kTokens;
  static_assert(kThreads >= kOutputs);
};

// The ring buffers of all warps, then a round's sums [8 warps][groups][row][token], then scales.
template <class Weights, class Shape>
struct FloatGemvMemory {
  using Tile = typename Weights::template Tile<Shape::kRows, kBlockColumns>;
  static constexpr int kRingBytes = Shape::kWarps * Shape::kStages * Tile::kBytes;
  static constexpr int bytes(int fold) {
    const int groups = Shape::kWarps * (kBlockColumns / fold);
    return kRingBytes + groups * (Shape::kOutputs + (Weights::kScaled ? Shape::kRows : 0)) * 4;
  }
};

// Scales and zero points of a lane's rows in one block of 128 columns, in stored form. There is an
// entry for each 32 columns, which is used if a group begins there.
template <class Weights, class Shape>
struct LaneGroups {
  std::uint32_t stored[Shape::kRowTiles][2][kBlockColumns / 32];

  template <class Arguments, class Rows>
  __device__ __forceinline__ void load(const Arguments& a, const Rows& rows, int block,
                                       const Folding& folding) {
    const bool exists = block * kBlockColumns < a.columns;
#pragma unroll
    for (int m = 0; m < Shape::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int n = m * 16 + half * 8 + static_cast<int>(threadIdx.x % 32) / 4;
        const auto& segment = rows.of(a, n);
        const int row = rows.first + rows.offset(n);
        const bool valid = exists && row < segment.rows;
        int i = 0;
#pragma unroll
        for (int part = 0; part < kBlockColumns / 32; ++part) {
          stored[m][half][part] = 0;
          if (!folding.begins_at(part * 32)) continue;
          const std::int64_t at = folding.scale_at(row, block, i++);
          if (valid) stored[m][half][part] = Weights::stored_group(segment.weight, at);
        }
      }
    }
  }
};

// The product of a block of 128 columns, for all rows and tokens, by group in sums and scales.
template <class Weights, class Shape>
struct BlockProduct {
  using Tile = typename FloatGemvMemory<Weights, Shape>::Tile;
  static constexpr int kRowTiles = Shape::kRowTiles;
  float sums[kRowTiles][4] = {};
  std::uint32_t offsets[kRowTiles][2] = {};

  // Starts the group that begins at columns 32 part of the block.
  template <class Arguments, class Rows>
  __device__ __forceinline__ void start(const Arguments& a, const Rows& rows,
                                        const LaneGroups<Weights, Shape>& groups, int part,
                                        float* scales) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int n = m * 16 + half * 8 + lane / 4;
        const GroupNumbers numbers =
            Weights::group_numbers(rows.of(a, n).weight, groups.stored[m][half][part]);
        offsets[m][half] = numbers.offset;
        if (lane % 4 == 0) scales[n] = numbers.scale;
      }
    }
  }
  __device__ __forceinline__ void leave(float* to) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = m * 16 + half * 8 + lane / 4;
        *reinterpret_cast<float2*>(to + row * Shape::kTokens + lane % 4 * 2) = {
            sums[m][half * 2], sums[m][half * 2 + 1]};
        sums[m][half * 2] = sums[m][half * 2 + 1] = 0;
      }
    }
  }
  __device__ __forceinline__ void multiply(const unsigned char* tile, int block, std::uint32_t flip,
                                           const uint4 (&x)[Weights::kTerms]) {
    const int own = static_cast<int>(threadIdx.x % 32) / 4;
    std::uint32_t w[kRowTiles][2][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      load_operand<Weights, Tile>(tile, m * 16 + own, block, flip, offsets[m], w[m]);
    }
    multiply_block<Weights>(sums, w, x);
  }
};

// Loads the terms (16-bit parts) of a lane's token for `parts` blocks of 32 columns from `first`.
template <int parts, int terms>
__device__ __forceinline__ void load_terms(const TermRows& x, std::int64_t token, int first,
                                           uint4 (&to)[parts][terms]) {
  const auto* from = reinterpret_cast<const uint4*>(x.terms + token * x.stride +
                                                    std::int64_t{first} * 32 * terms) +
                     threadIdx.x % 4;
#pragma unroll
  for (int part = 0; part < parts; ++part) {
#pragma unroll
    for (int term = 0; term < terms; ++term) {
      to[part][term] = from[(part * terms + term) * 4];
    }
  }
}

// Writes the totals, one per thread. y is in shared memory, so that the thread of gate can read up.
template <class Weights, class Shape, class Arguments>
__device__ __forceinline__ void finish_outputs(const Arguments& a, const GemmRows<Shape>& rows,
                                               float* y, float total) {
  const int thread = static_cast<int>(threadIdx.x), n = thread / Shape::kTokens;
  const int row = rows.first + rows.offset(n);
  const std::int64_t token = rows.first_token + thread % Shape::kTokens;
  const auto& segment = rows.of(a, n);
  const bool exists = thread < Shape::kOutputs && row < segment.rows && token < a.tokens;
  if (exists) {
    const float2 scales = {a.x.scales[token * 2], a.x.scales[token * 2 + 1]};
    y[thread] = FloatRowFinish<Weights>(segment, row).value(scales, total);
  }
  __syncthreads();
  if (!exists || (rows.paired && n % 16 >= 8)) return;
  const float up = rows.paired ? y[thread + 8 * Shape::kTokens] : 0.0f;
  finish(a.finish, a.out, token, rows.column + rows.offset(n), y[thread], up);
}

template <class Weights, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 2)
    float_gemv(const LEQ_GRID_CONSTANT typename Weights::Arguments a) {
  LEQ_BOUNDS(Shape::kThreads);
  using Memory = FloatGemvMemory<Weights, Shape>;
  // Inputs are loaded for as many parts of 32 columns as registers suffice for.
  constexpr int kParts = kBlockColumns / 32, kFetched = Weights::kTerms == 2 ? kParts : 2;
  constexpr int kWarps = Shape::kWarps;
  LEQ_DYNAMIC_SHARED(unsigned char, memory);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const Folding folding = Weights::folding(a);
  const int blocks = static_cast<int>(padded_columns(a.columns)) / kBlockColumns;
  const std::uint32_t flip = Weights::flip(a);
  const GemmRows<Shape> rows(a);
  unsigned char* const ring = memory + warp * Shape::kStages * Memory::Tile::kBytes;
  auto* const sums = reinterpret_cast<float*>(memory + Memory::kRingBytes);
  float* const scales = sums + kWarps * folding.of_block * Shape::kOutputs;
  const auto load = [&](int round) {
    if (const int block = round * kWarps + warp; block < blocks) {
      load_tile<Weights, typename Memory::Tile, Shape::kRows>(
          a, rows, block, ring + round % Shape::kStages * Memory::Tile::kBytes, thread % 32, 32);
    }
    ptx::cp_async_commit();
  };
  for (int round = 0; round < Shape::kStages - 1; ++round) load(round);
  LaneGroups<Weights, Shape> stored;
  if constexpr (Weights::kScaled) stored.load(a, rows, warp, folding);
  ptx::wait_for_predecessor();
  const std::int64_t token = min(rows.first_token + thread % 32 / 4, a.tokens - 1);
  float total = 0;
  for (int round = 0; round * kWarps < blocks; ++round) {
    const int block = round * kWarps + warp;
    uint4 x[kFetched][Weights::kTerms];
    if (block < blocks) load_terms(a.x, token, block * kParts, x);
    ptx::cp_async_wait<Shape::kStages - 2>();
    __syncwarp();
    load(round + Shape::kStages - 1);
    if (block < blocks) {
      const unsigned char* const tile = ring + round % Shape::kStages * Memory::Tile::kBytes;
      BlockProduct<Weights, Shape> product;
      int at = warp * folding.of_block;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        if constexpr (Weights::kScaled) {
          if (folding.begins_at(part * 32)) {
            product.start(a, rows, stored, part, scales + at * Shape::kRows);
          }
        }
        if (part > 0 && part % kFetched == 0) {
          load_terms(a.x, token, block * kParts + part, x);
        }
        product.multiply(tile, part, flip, x[part % kFetched]);
        if (folding.begins_at((part + 1) * 32)) product.leave(sums + at++ * Shape::kOutputs);
      }
    }
    if constexpr (Weights::kScaled) stored.load(a, rows, block + kWarps, folding);
    __syncthreads();
    const int count = min(kWarps, blocks - round * kWarps) * folding.of_block;
    for (int i = 0; i < count && thread < Shape::kOutputs; ++i) {
      const float scale = Weights::kScaled ? scales[i * Shape::kRows + thread / 8] : 1.0f;
      total = fmaf(sums[i * Shape::kOutputs + thread], scale, total);
    }
    __syncthreads();
  }
  ptx::let_successor_start();
  finish_outputs<Weights>(a, rows, sums, total);
}

}  // namespace leq::LEQ_GPU
