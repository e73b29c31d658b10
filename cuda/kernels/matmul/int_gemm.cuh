// Many tokens times a weight of 8, 4, 3 or 2 bits, or of codes with a table, on the tensor cores
// (mma.m16n8k32). A block computes a tile of tokens x outputs. It iterates over K tiles of 128
// columns, which are prefetched by cp.async (docs/cuda.md).
#pragma once

#include <type_traits>

#include "cuda/intrinsics/arrays.cuh"
#include "cuda/intrinsics/reduce.cuh"
#include "cuda/kernels/matmul/gemm_k_tiles.cuh"
#include "cuda/kernels/matmul/matmul_finish.cuh"

namespace leq::LEQ_GPU {

// The sums of one warp. Number i of an mma tile has token lane / 4 + 8 (i / 2) and
// row 2 (lane % 4) + i % 2.
template <class Shape, int bits, int group>
struct WarpTile {
  using Memory = GemmMemory<Shape, bits, group>;
  static constexpr int kDown = Shape::kMmaDown, kAcross = Shape::kMmaAcross;
  int sums[kDown][kAcross][4];
  ScaledSum totals[group == 0 ? 1 : kDown][group == 0 ? 1 : kAcross][4];
  int first_token, first_row;     // of the lane's first sum, within the block's tile
  int tokens_run, rows_run;       // index of the lane's values in the groups' data
  int tokens_place, codes_place;  // the lane's first reads in a stage's tokens and codes

  __device__ __forceinline__ WarpTile() {
    const int warp = static_cast<int>(threadIdx.x / 32) % (Shape::kDown * Shape::kAcross);
    const unsigned lane = threadIdx.x % 32;
    const unsigned token = static_cast<unsigned>(warp / Shape::kAcross * kDown * 16);
    const int row = warp % Shape::kAcross * kAcross * 8;
    first_token = ptx::opaque(token + lane / 4);
    first_row = ptx::opaque(static_cast<unsigned>(row) + lane % 4 * 2);
    tokens_run = ptx::opaque(token + lane / 4 * LaneOrder<Shape>::kTokens);
    rows_run = ptx::opaque(static_cast<unsigned>(row) + lane % 4 * LaneOrder<Shape>::kRows);
    tokens_place = ptx::opaque(static_cast<unsigned>(
        swizzled<8>(static_cast<int>(token + lane % 16), static_cast<int>(lane / 16))));
    codes_place = ptx::opaque(static_cast<unsigned>(KTileCodes<Shape, bits>::place(row)));
  }
  __device__ __forceinline__ int token(int down, int i) const {
    return first_token + down * 16 + i / 2 * 8;
  }
  __device__ __forceinline__ int row(int across, int i) const {
    return first_row + across * 8 + i % 2;
  }

  __device__ __forceinline__ void start(int value) { fill(sums, value); }
  // Calls use(across, down, i) for each of the lane's sums.
  template <class Use>
  static __device__ __forceinline__ void for_sums(Use use) {
#pragma unroll
    for (int across = 0; across < kAcross; ++across) {
#pragma unroll
      for (int down = 0; down < kDown; ++down) {
#pragma unroll
        for (int i = 0; i < 4; ++i) use(across, down, i);
      }
    }
  }
  // Multiplies one step of 32 columns, or half 0 or 1 of it.
  template <int half = -1, class Codes>
  __device__ __forceinline__ void multiply(const unsigned char* stage, const Codes& codes, int step,
                                           const Decoder<bits>& flip) {
    std::uint32_t x[kDown][4];
#pragma unroll
    for (int down = 0; down < kDown; ++down) {
      ptx::ldmatrix_x4(x[down], stage + (tokens_place ^ step * 32) + down * 16 * kKTile);
    }
#pragma unroll
    for (int across = 0; across < kAcross; ++across) {
      std::uint32_t b[2];
      codes.operand(across, step, flip, b);
      if constexpr (half >= 0) b[1 - half] = 0;
#pragma unroll
      for (int down = 0; down < kDown; ++down) {
        ptx::mma_m16n8k32_s8(sums[down][across], x[down], b);
      }
    }
  }

  // Writes all sums to shared memory, where int_gemm_few adds the sums of its warps.
  __device__ __forceinline__ void put_sums(int (&to)[Shape::kTokens][Shape::kRows]) const {
    for_sums([&](int across, int down, int i) {
      to[token(down, i)][row(across, i)] = sums[down][across][i];
    });
  }

  template <class T>
  __device__ __forceinline__ auto of_rows(const T* values) const {
    return LaneRun<T, LaneOrder<Shape>::kRows>(values + rows_run);
  }
  template <class T>
  __device__ __forceinline__ auto of_tokens(const T* values) const {
    return LaneRun<T, LaneOrder<Shape>::kTokens>(values + tokens_run);
  }

  // Subtracts what the zero points contribute to the sums of group g.
  __device__ __forceinline__ void take_zeros(const typename Memory::Groups& groups, int g) {
    const auto less = of_rows(groups.less_zero[g]);
    const auto token_sums = of_tokens(groups.token_sum[g]);
    for_sums([&](int across, int down, int i) {
      sums[down][across][i] += less[across * 2 + i % 2] * token_sums[down * 2 + i / 2];
    });
  }

  // Ends group g of the K tile: adds its scaled sums to the totals.
  __device__ __forceinline__ void flush(const IntMatmul& a, const typename Memory::Groups& groups,
                                        int g) {
    const CodeWeight& weight = a.segments[0].weight;
    if (weight.zeros != nullptr) take_zeros(groups, g);
    const auto add = [&](auto scale) {
      for_sums([&](int across, int down, int i) {
        totals[down][across][i].add(sums[down][across][i], scale(across, down, i));
      });
    };
    const auto row_scales = of_rows(groups.row_scale[g]);
    const auto token_scales = of_tokens(groups.token_scale[g]);
    const auto of_row = [&](int across, int i) { return row_scales[across * 2 + i % 2]; };
    const auto of_token = [&](int down, int i) { return token_scales[down * 2 + i / 2]; };
    // If only weights or only tokens have groups, the other scale of the group is 1.
    if (a.x.group == 0) {
      add([&](int across, int, int i) { return of_row(across, i); });
    } else if (weight.group == 0) {
      add([&](int, int down, int i) { return of_token(down, i); });
    } else {
      add([&](int across, int down, int i) { return of_row(across, i) * of_token(down, i); });
    }
  }

  // Constants for the outputs: TokenFacts of all tokens of a lane, and RowFacts of one row.
  struct TokenFacts {
    float scale[kDown][2];
    int sum[kDown][2];
    bool exists[kDown][2];

    __device__ __forceinline__ TokenFacts(const IntMatmul& a, const GemmRows<Shape>& rows,
                                          const WarpTile& tile) {
      const bool has_zeros = group == 0 && has_unsigned_bytes(a.segments[0].weight);
#pragma unroll
      for (int down = 0; down < kDown; ++down) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const std::int64_t token = rows.first_token + tile.token(down, 2 * half);
          exists[down][half] = token < a.tokens;
          const std::int64_t from = exists[down][half] ? token : 0;
          scale[down][half] = row_scale_of(a, from);
          sum[down][half] = has_zeros ? a.x.sums[from * a.x.sum_stride] : 0;
        }
      }
    }
  };
  struct RowFacts {
    RowFinish finish;
    int zero;

    __device__ __forceinline__ RowFacts(const CodeSegment& segment, int n)
        : finish(segment, n),
          zero(group == 0 && has_unsigned_bytes(segment.weight) ? segment.weight.zeros[n] - 128
                                                                : 0) {}
  };
  __device__ __forceinline__ float value(const RowFacts& facts, const TokenFacts& tokens, int down,
                                         int across, int i) const {
    float sum;
    if constexpr (group > 0) {
      sum = totals[down][across][i].total;
    } else {
      // The sum over the whole row, less what its zero point contributes.
      sum = static_cast<float>(sums[down][across][i] - facts.zero * tokens.sum[down][i / 2]);
    }
    return facts.finish.value(tokens.scale[down][i / 2], sum);
  }

  // Writes the outputs of eight rows; all reads precede the writes.
  __device__ __forceinline__ void finish_across(const IntMatmul& a, const GemmRows<Shape>& rows,
                                                const TokenFacts& tokens, int across) const {
    const int tile_row = row(across, 0), offset = rows.offset(tile_row), n = rows.first + offset;
    const CodeSegment& segment = rows.of(a, tile_row);
    if (n >= segment.rows) return;
    const bool has_next = n + 1 < segment.rows;
    const RowFacts facts[2] = {{segment, n}, {segment, has_next ? n + 1 : n}};
    const CodeSegment& other = rows.paired ? a.segments[1] : segment;
    const RowFacts ups[2] = {{other, n}, {other, has_next ? n + 1 : n}};
    float* const first =
        a.out.values + (rows.first_token + token(0, 0)) * a.out.stride + rows.column + offset;
    const auto place = [&](int down, int i) {
      return first + (down * 16 + i / 2 * 8) * a.out.stride + i % 2;
    };
    const auto exists = [&](int down, int i) {
      return tokens.exists[down][i / 2] && (i % 2 == 0 || has_next);
    };
    float before[kDown][4] = {};
    if (a.finish == Finish::add) {
#pragma unroll
      for (int down = 0; down < kDown; ++down) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (exists(down, i)) before[down][i] = *place(down, i);
        }
      }
    }
#pragma unroll
    for (int down = 0; down < kDown; ++down) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float y = value(facts[i % 2], tokens, down, across, i);
        float up = 0;
        if (rows.paired) up = value(ups[i % 2], tokens, down, (across + 1) % kAcross, i);
        if (exists(down, i)) *place(down, i) = finished(a.finish, y, up, before[down][i]);
      }
    }
  }

  __device__ __forceinline__ void finish_all(const IntMatmul& a,
                                             const GemmRows<Shape>& rows) const {
    const TokenFacts tokens(a, rows, *this);
    // If gated the mma tiles across alternate between gate and up.
    const int step = rows.paired ? 2 : 1;
#pragma unroll
    for (int across = 0; across < kAcross; ++across) {
      if (across % step == 0) finish_across(a, rows, tokens, across);
    }
  }
};

// Multiplies one K tile. When the sums of a group g are complete, complete(g) is called.
template <class Shape, int bits, int group, class Complete>
__device__ __forceinline__ void multiply_k_tile(const unsigned char* stage,
                                                const Decoder<bits>& flip,
                                                WarpTile<Shape, bits, group>& tile,
                                                Complete complete) {
  using Memory = GemmMemory<Shape, bits, group>;
  const unsigned char* const weights = stage + Memory::kTokenBytes;
  KTileCodes<Shape, bits> codes;
  if constexpr (bits == 3) codes.load_three(weights, tile.codes_place);
  if constexpr (kStoredBits<bits> == 4 || bits == 2) codes.load(weights, tile.codes_place, 0);
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    if constexpr (bits == 8) codes.load(weights, tile.codes_place, step * 2);
    if constexpr (group == 16) {
      tile.start(ScaledSum::kStart);
      tile.template multiply<0>(stage, codes, step, flip);
      complete(step * 2);
      tile.start(ScaledSum::kStart);
      tile.template multiply<1>(stage, codes, step, flip);
      complete(step * 2 + 1);
      continue;
    }
    if (group > 0 && step * 32 % (group > 0 ? group : 1) == 0) tile.start(ScaledSum::kStart);
    tile.multiply(stage, codes, step, flip);
    if constexpr (group > 0) {
      if ((step + 1) * 32 % group == 0) complete(step * 32 / group);
    }
  }
}

// Computes the tile of a block. group: the number of columns of one int32 sum, or 0 for the whole
// row; `memory` has GemmMemory::kBytes.
template <class Shape, int bits, int group>
__device__ __forceinline__ void multiply_tile(const IntMatmul& a, const GemmRows<Shape>& rows,
                                              unsigned char* memory) {
  using Memory = GemmMemory<Shape, bits, group>;
  const auto groups_at = [&](int place) -> typename Memory::Groups& {
    return *reinterpret_cast<typename Memory::Groups*>(memory + place);
  };
  const Grouping grouping(a);
  const Decoder<bits> flip = signed_flip<bits>(a);
  const int k_tiles = grouping.columns / kKTile;
  CodeCopies<Shape, bits> weights(a, rows, k_tiles);
  TokenCopies<Shape> tokens(a, rows);
  for (int k_tile = 0; k_tile < min(Shape::kStages - 1, k_tiles); ++k_tile) {
    weights.load(memory + k_tile * Memory::kStageBytes + Memory::kTokenBytes, k_tile);
  }
  ptx::wait_for_predecessor();
  for (int k_tile = 0; k_tile < Shape::kStages - 1; ++k_tile) {
    if (k_tile < k_tiles) tokens.load(memory + k_tile * Memory::kStageBytes, k_tile);
    ptx::cp_async_commit();
  }
  using Groups = std::conditional_t<(group > 0), KTileGroups<Shape, bits, group>, NoGroups>;
  [[maybe_unused]] Groups next(a, rows, static_cast<int>(threadIdx.x));
  if constexpr (group > 0) {
    next.load(0);
    next.store(groups_at(Memory::kGroupsAt));
  }
  WarpTile<Shape, bits, group> tile;
  tile.start(0);
  // Offsets of the current K tile's stage, and of the preceding K tile's stage, which is free.
  int stage = 0, free = (Shape::kStages - 1) * Memory::kStageBytes;
  [[maybe_unused]] int set = Memory::kGroupsAt;  // offset of the current groups' data
  for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    ptx::cp_async_wait<Shape::kStages - 2>();
    // Makes the K tile visible to all threads; the preceding stage is then free.
    __syncthreads();
    const int ahead = k_tile + Shape::kStages - 1;
    if (ahead < k_tiles) {
      weights.load(memory + free + Memory::kTokenBytes, ahead);
      tokens.load(memory + free, ahead);
    }
    ptx::cp_async_commit();
    const bool more = group > 0 && k_tile + 1 < k_tiles;
    if constexpr (group > 0) {
      if (more) next.load(k_tile + 1);
    }
    multiply_k_tile<Shape, bits, group>(memory + stage, flip, tile,
                                        [&](int g) { tile.flush(a, groups_at(set), g); });
    if constexpr (group > 0) {
      set = 2 * Memory::kGroupsAt + int{sizeof(typename Memory::Groups)} - set;
      if (more) next.store(groups_at(set));
    }
    free = stage;
    stage = stage == (Shape::kStages - 1) * Memory::kStageBytes ? 0 : stage + Memory::kStageBytes;
  }
  ptx::let_successor_start();
  tile.finish_all(a, rows);
}

using SmallTile = GemmShape<16, 64, 1, 4, 6>;
using MiddleTile = GemmShape<64, 64, 2, 2, 4>;
using LargeTile = GemmShape<128, 128, 2, 4, 3>;

// The number of columns of one int32 sum; 0 if it is over the whole row.
inline int sum_columns(const IntMatmul& a) {
  const int weights = a.segments[0].weight.group;
  return weights == 0 || (a.x.group > 0 && a.x.group < weights) ? a.x.group : weights;
}

template <class Shape, int bits, int group>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    int_gemm(const LEQ_GRID_CONSTANT IntMatmul a) {
  LEQ_BOUNDS(Shape::kThreads);
  LEQ_DYNAMIC_SHARED(unsigned char, memory);
  multiply_tile<Shape, bits, group>(a, GemmRows<Shape>(a), memory);
}

}  // namespace leq::LEQ_GPU
