// Attention on the tensor cores, second half of a warp's computation on a tile: weights times the
// tile's values, and the processing of the sums at the end of a span.
#pragma once

#include "cuda/kernels/attention/attention_tile_scores.cuh"

namespace leq::LEQ_GPU {

// For 16-bit values, 16 positions x 16 columns are two operands of eight columns.
template <class Shape>
__device__ __forceinline__ void add_halves(const unsigned char* values,
                                           const TileWeights<Shape>& weights,
                                           WarpRows<Shape>& warp) {
  using Rows = typename TileMemory<Shape>::Rows;
  const int lane = ptx::opaque(threadIdx.x % 32);
  const int first_chunk = warp.first_column / 8 + lane / 16;
#pragma unroll
  for (int step = 0; step < kTile / 16; ++step) {
#pragma unroll
    for (int c = 0; c < Shape::kColumns / 16; ++c) {
      std::uint32_t b[4];
      ptx::ldmatrix_x4_trans(b, values + Rows::at(16 * step + lane % 16, first_chunk + 2 * c));
#pragma unroll
      for (int i = 0; i < Shape::kRowTiles; ++i) {
        multiply(warp.out[i][2 * c], weights[i][step], b[0], b[1]);
        multiply(warp.out[i][2 * c + 1], weights[i][step], b[2], b[3]);
      }
    }
  }
}

// Values of 32 positions x 16 columns from codes u, as the f16 numbers 1024 + u. ldmatrix moves two
// codes of a position as one 16-bit number, so that a lane has columns 2 g and 2 g + 1: even
// columns form one operand, odd columns another. The excess of each column, (1024 + 128) times the
// sum of weights, is summed separately and subtracted.
struct CodeWords {
  std::uint32_t words[4];

  template <class Shape>
  static __device__ __forceinline__ CodeWords of(const unsigned char* values, int lane, int step,
                                                 int chunk) {
    CodeWords found;
    ptx::ldmatrix_x4_trans(found.words,
                           values + TileMemory<Shape>::Rows::at(16 * step + lane, chunk));
    return found;
  }
  // The registers of the first 16 positions, or if `next` of the other 16; of even or odd columns.
  __device__ __forceinline__ uint2 operand(int next, int odd, std::uint32_t offset) const {
    constexpr std::uint32_t kEven = 0x5250u, kOdd = 0x5351u;
    const std::uint32_t which = odd != 0 ? kOdd : kEven;
    return {ptx::select_bytes(words[2 * next], offset, which),
            ptx::select_bytes(words[2 * next + 1], offset, which)};
  }
};

// The address of a lane's registers for 16 positions x 16 columns in the tile's expanded operands.
template <class Shape>
__device__ __forceinline__ uint4* operand_at(unsigned char* memory, int step, int chunk, int lane) {
  constexpr int kChunks = Shape::kDims / 16;
  return reinterpret_cast<uint4*>(memory + TileMemory<Shape>::kOperandsAt) +
         (step * kChunks + chunk) * 32 + lane;
}

// Expands a tile's codes of values into operands, once for all warps of a prompt's block; called
// between barriers.
template <class Shape>
__device__ __forceinline__ void expand_values(unsigned char* memory, const unsigned char* values,
                                              std::uint32_t offset) {
  constexpr int kChunks = Shape::kDims / 16, kWarps = Shape::kThreads / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int i = 0; i < kTile / 32 * kChunks; i += kWarps) {
    const int unit = i + static_cast<int>(threadIdx.x / 32);
    const int step = unit / kChunks * 2, chunk = unit % kChunks;
    if (unit >= kTile / 32 * kChunks) break;
    const CodeWords words = CodeWords::of<Shape>(values, lane, step, chunk);
#pragma unroll
    for (int next = 0; next < 2; ++next) {
      const uint2 even = words.operand(next, 0, offset), odd = words.operand(next, 1, offset);
      *operand_at<Shape>(memory, step + next, chunk, lane) = {even.x, even.y, odd.x, odd.y};
    }
  }
}

template <class Shape>
__device__ __forceinline__ void add_codes(unsigned char* memory, const unsigned char* values,
                                          const TileWeights<Shape>& weights,
                                          WarpRows<Shape>& warp) {
  constexpr std::uint32_t kMinusMiddle = 0xe480e480u;  // f16 -(1024 + kMiddleCode), twice
  const int lane = ptx::opaque(threadIdx.x % 32), first_chunk = warp.first_column / 16;
#pragma unroll
  for (int step = 0; step < kTile / 16; step += 2) {
#pragma unroll
    for (int c = 0; c < Shape::kColumns / 16; ++c) {
      [[maybe_unused]] CodeWords words;
      if constexpr (!TileMemory<Shape>::kExpands) {
        words = CodeWords::of<Shape>(values, lane, step, first_chunk + c);
      }
#pragma unroll
      for (int next = 0; next < 2; ++next) {
        [[maybe_unused]] uint4 both;
        if constexpr (TileMemory<Shape>::kExpands) {
          both = *operand_at<Shape>(memory, step + next, first_chunk + c, lane);
        }
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          uint2 b;
          if constexpr (TileMemory<Shape>::kExpands) {
            b = odd == 0 ? uint2{both.x, both.y} : uint2{both.z, both.w};
          } else {
            b = words.operand(next, odd, warp.offset);
          }
#pragma unroll
          for (int i = 0; i < Shape::kRowTiles; ++i) {
            multiply(warp.out[i][2 * c + odd], weights[i][step + next], b.x, b.y);
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < Shape::kRowTiles; ++i) {
      multiply(warp.shift[i][0], weights[i][step], kMinusMiddle, kMinusMiddle);
      multiply(warp.shift[i][0], weights[i][step + 1], kMinusMiddle, kMinusMiddle);
    }
  }
}

template <class Shape>
__device__ __forceinline__ void add_tile(unsigned char* memory, const unsigned char* stage,
                                         const TileWeights<Shape>& weights, WarpRows<Shape>& warp) {
  using Memory = TileMemory<Shape>;
  if constexpr (Shape::kCoded) {
    add_codes<Shape>(memory, stage + Memory::kValuesAt, weights, warp);
  } else {
    add_halves<Shape>(stage + Memory::kValuesAt, weights, warp);
  }
}

// At the end of a span, adds to every column the shift that all columns share.
template <class Shape>
__device__ __forceinline__ void add_middles(WarpRows<Shape>& warp) {
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i) {
    const float middle[2] = {four_lane_sum(warp.middle[i][0]), four_lane_sum(warp.middle[i][1])};
#pragma unroll
    for (int j = 0; j < Shape::kColumns / 8; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        warp.out[i][j][k] = (warp.out[i][j][k] + warp.shift[i][0][k]) + middle[k / 2];
      }
    }
  }
}

// Returns two neighbouring columns of the outputs that a lane has: pair `index` of kColumns / 8.
template <class Shape>
struct ColumnPair {
  int column;
  int tile[2], slot[2];  // indices into WarpRows::out; the row's half is added

  __device__ __forceinline__ ColumnPair(int first_column, int index) {
    const int lane = static_cast<int>(threadIdx.x % 4), c = index / 2, k = index % 2;
    const bool coded = Shape::kCoded;
    column = first_column + 16 * c + (coded ? 4 * lane + 2 * k : 8 * k + 2 * lane);
    tile[0] = coded ? 2 * c : index;
    tile[1] = coded ? 2 * c + 1 : index;
    slot[0] = coded ? k : 0;
    slot[1] = coded ? k : 1;
  }
  __device__ __forceinline__ float2 of(const float (&out)[Shape::kColumns / 8][4], int half) const {
    return {out[tile[0]][2 * half + slot[0]], out[tile[1]][2 * half + slot[1]]};
  }
};

// Writes o, m and l of a span to its record.
template <class Shape>
__device__ __forceinline__ void store_record(const WarpRows<Shape>& warp, int tile, int half,
                                             float total, int dims, float* record) {
#pragma unroll
  for (int index = 0; index < Shape::kColumns / 8; ++index) {
    const ColumnPair<Shape> pair(warp.first_column, index);
    if (pair.column >= dims) continue;
    *reinterpret_cast<float2*>(record + pair.column) = pair.of(warp.out[tile], half);
  }
  if (threadIdx.x % 4 != 0 || warp.first_column != 0) return;
  record[dims] = warp.largest[tile][half];
  record[dims + 1] = total;
}

// M and L of the spans so far; O is in the output rows. Four lanes share 2 * kRowTiles queries, and
// each lane has M and L of one query.
template <class Shape>
struct Joined {
  float largest = kMaskedScore, total = 0.0f;
  static_assert(Shape::kRowTiles <= 2);

  // Computes O = fma(o, b, O a), after the last span times 1 / L. `more` is l. out is null if the
  // query does not exist.
  __device__ __forceinline__ void add(const WarpRows<Shape>& warp, int tile, int half, float more,
                                      bool first, bool last, const AttentionHeads& heads,
                                      std::int64_t head, float* out) {
    const int lane = static_cast<int>(threadIdx.x % 32), owner = lane / 4 * 4 + 2 * tile + half;
    const float most = warp.largest[tile][half];
    const Join join(__shfl_sync(kEveryLane, largest, owner), most);
    const float take = join.take(most);
    const float sum = fmaf(more, take, __shfl_sync(kEveryLane, total, owner) * join.keep);
    if (lane == owner) {
      largest = join.largest;
      total = sum;
    }
    if (out == nullptr) return;
    const float factor =
        last ? output_factor<TensorJoin<Shape>>(heads, head, join.largest, sum) : 1.0f;
#pragma unroll
    for (int index = 0; index < Shape::kColumns / 8; ++index) {
      const ColumnPair<Shape> pair(warp.first_column, index);
      if (pair.column >= heads.head_dim) continue;
      auto* const to = reinterpret_cast<float2*>(out + pair.column);
      const float2 before = first ? float2{0.0f, 0.0f} : *to, o = pair.of(warp.out[tile], half);
      *to = {fmaf(o.x, take, before.x * join.keep) * factor,
             fmaf(o.y, take, before.y * join.keep) * factor};
    }
  }
};

}  // namespace leq::LEQ_GPU
