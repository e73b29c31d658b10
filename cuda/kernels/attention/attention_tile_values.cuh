// The second half: weights times the tile's values, and what happens with the sums at the end of a
// span.
#pragma once

#include "cuda/kernels/attention/attention_tile_scores.cuh"

namespace leq::LEQ_GPU {

// Values of 16 positions x 16 columns from 16-bit numbers: two operands of eight columns.
template <class Shape>
__device__ __forceinline__ void add_halves(const unsigned char* values,
                                           const TileWeights<Shape>& weights,
                                           WarpRows<Shape>& warp) {
  using Rows = typename TileMemory<Shape>::Values;
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

// Values of 32 positions x 16 columns from codes u, as the f16 numbers 1024 + u: two codes of a
// position count as one 16-bit number on the way through ldmatrix, so a lane gets them of columns
// 2 g and 2 g + 1: the even columns are one operand, the odd ones another. What that adds to every
// column, 1024 + 128 times the sum of weights, is summed apart, less by as much.
struct CodeOperands {
  std::uint32_t b[2][2][2];  // of 16 positions: columns even and odd, registers

  template <class Shape>
  static __device__ __forceinline__ CodeOperands of(const unsigned char* values, int lane, int step,
                                                    int chunk, std::uint32_t offset) {
    constexpr std::uint32_t kEven = 0x5250u, kOdd = 0x5351u;
    std::uint32_t words[4];
    ptx::ldmatrix_x4_trans(words, values + TileMemory<Shape>::Values::at(16 * step + lane, chunk));
    CodeOperands found;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int next = i / 4, odd = i / 2 % 2, k = i % 2;
      found.b[next][odd][k] =
          ptx::select_bytes(words[2 * next + k], offset, odd != 0 ? kOdd : kEven);
    }
    return found;
  }
};

// Where a lane's registers for 16 positions x 16 columns lie among a tile's operands.
template <class Shape>
__device__ __forceinline__ uint4* operand_at(unsigned char* memory, int step, int chunk, int lane) {
  constexpr int kChunks = Shape::kDims / 16;
  return reinterpret_cast<uint4*>(memory + TileMemory<Shape>::kOperandsAt) +
         (step * kChunks + chunk) * 32 + lane;
}

// A tile's codes of values become operands, once for all warps of a prompt's block; between
// barriers.
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
    const CodeOperands found = CodeOperands::of<Shape>(values, lane, step, chunk, offset);
#pragma unroll
    for (int next = 0; next < 2; ++next) {
      const auto& b = found.b[next];
      *operand_at<Shape>(memory, step + next, chunk, lane) = {b[0][0], b[0][1], b[1][0], b[1][1]};
    }
  }
}

template <class Shape>
__device__ __forceinline__ void add_operands(std::uint32_t even0, std::uint32_t even1,
                                             std::uint32_t odd0, std::uint32_t odd1, int step,
                                             int c, const TileWeights<Shape>& weights,
                                             WarpRows<Shape>& warp) {
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i) {
    multiply(warp.out[i][2 * c], weights[i][step], even0, even1);
  }
#pragma unroll
  for (int i = 0; i < Shape::kRowTiles; ++i) {
    multiply(warp.out[i][2 * c + 1], weights[i][step], odd0, odd1);
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
      if constexpr (TileMemory<Shape>::kExpands) {
#pragma unroll
        for (int next = 0; next < 2; ++next) {
          const uint4 b = *operand_at<Shape>(memory, step + next, first_chunk + c, lane);
          add_operands<Shape>(b.x, b.y, b.z, b.w, step + next, c, weights, warp);
        }
      } else {
        const CodeOperands found =
            CodeOperands::of<Shape>(values, lane, step, first_chunk + c, warp.offset);
#pragma unroll
        for (int next = 0; next < 2; ++next) {
          const auto& b = found.b[next];
          add_operands<Shape>(b[0][0], b[0][1], b[1][0], b[1][1], step + next, c, weights, warp);
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
  if constexpr (Shape::kCodedValues) {
    add_codes<Shape>(memory, stage + Memory::kValuesAt, weights, warp);
  } else {
    add_halves<Shape>(stage + Memory::kValuesAt, weights, warp);
  }
}

// At the end of a span: what columns share joins them.
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

// Two neighbouring columns of the outputs that a lane holds: pair `index` of kColumns / 8.
template <class Shape>
struct ColumnPair {
  int column;
  int tile[2], slot[2];  // of WarpRows::out, without the row's half

  __device__ __forceinline__ ColumnPair(int first_column, int index) {
    const int lane = static_cast<int>(threadIdx.x % 4), c = index / 2, k = index % 2;
    const bool coded = stored_coded(Shape::kValues);
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

// A span's (o, m, l) to its record.
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

// M and L of the spans so far; O lies in the rows of the output. Four lanes share 2 * kRowTiles
// queries, and each keeps the numbers of one.
template <class Shape>
struct Joined {
  float largest = kNothingSeen, total = 0.0f;
  static_assert(Shape::kRowTiles <= 2);

  // O = fma(o, b, O a), times 1 / L after the last span. `more` is l; out is null where there is
  // no such query.
  __device__ __forceinline__ void add(const WarpRows<Shape>& warp, int tile, int half, float more,
                                      bool first, bool last, int dims, float* out) {
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
    const float factor = last ? 1.0f / sum : 1.0f;
#pragma unroll
    for (int index = 0; index < Shape::kColumns / 8; ++index) {
      const ColumnPair<Shape> pair(warp.first_column, index);
      if (pair.column >= dims) continue;
      auto* const to = reinterpret_cast<float2*>(out + pair.column);
      const float2 before = first ? float2{0.0f, 0.0f} : *to, o = pair.of(warp.out[tile], half);
      *to = {fmaf(o.x, take, before.x * join.keep) * factor,
             fmaf(o.y, take, before.y * join.keep) * factor};
    }
  }
};

}  // namespace leq::LEQ_GPU
