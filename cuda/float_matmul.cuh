// f32 activations times weights that are widened to f32 one by one: floats, and integer codes
// without quantized activations. Every output is the chain of docs/numerics.md, 16 lanes by column
// % 16, so it has the bits of the CPU: four threads own a row, four lanes of the chain each.
#pragma once

#include "cuda/matmul_finish.cuh"
#include "cuda/planes.cuh"
#include "cuda/reduce.cuh"

namespace leq::LEQ_GPU {

inline constexpr int kFloatWarps = 4;
inline constexpr int kFloatRows = 8 * kFloatWarps;  // of a block

// A row of floats. A piece is what a thread loads at once: its columns 4 q ... 4 q + 3 of `kBlocks`
// blocks of 16, q = thread % 4.
template <FloatType type>
struct FloatRow {
  static constexpr int kBlocks = 1;
  using Piece = int4;
  const unsigned char* row;

  __device__ __forceinline__ FloatRow(const FloatSegment& segment, std::int64_t n,
                                      std::int64_t columns, int q) {
    constexpr int kBytes = type == FloatType::f32 ? 4 : 2;
    row = static_cast<const unsigned char*>(segment.weight.values) +
          (n * float_stride(columns) + q * 4) * kBytes;
  }
  __device__ __forceinline__ const unsigned char* at(int index) const {
    return row + std::int64_t{index} * (type == FloatType::f32 ? 64 : 32);
  }
  __device__ __forceinline__ Piece load(int index) const {
    if constexpr (type == FloatType::f32) {
      return *reinterpret_cast<const int4*>(at(index));
    } else {
      const int2 pairs = *reinterpret_cast<const int2*>(at(index));
      return {pairs.x, pairs.y, 0, 0};
    }
  }
  __device__ __forceinline__ void widen(const Piece& piece, int, int, float (&w)[4]) const {
    if constexpr (type == FloatType::f32) {
      w[0] = __int_as_float(piece.x);
      w[1] = __int_as_float(piece.y);
      w[2] = __int_as_float(piece.z);
      w[3] = __int_as_float(piece.w);
    } else {
      w[0] = widened(static_cast<std::uint32_t>(piece.x));
      w[1] = widened(static_cast<std::uint32_t>(piece.x) >> 16);
      w[2] = widened(static_cast<std::uint32_t>(piece.y));
      w[3] = widened(static_cast<std::uint32_t>(piece.y) >> 16);
    }
  }
  static __device__ __forceinline__ float widened(std::uint32_t half) {
    const auto bits = static_cast<std::uint16_t>(half);
    return type == FloatType::f16 ? ptx::f16_to_f32(bits) : ptx::bf16_to_f32(bits);
  }
};

// A row of codes: a weight is float(code - zero) * scale. Word q of each 16 bytes of a plane is
// what the thread needs.
template <int bits>
struct CodeRow {
  static constexpr int kBlocks = Planes<bits>::kRuns;
  struct Piece {
    std::uint32_t low, high;
  };
  const CodeWeight& weight;
  const std::uint8_t* low;
  const std::uint8_t* high;
  std::int64_t first_group;
  bool is_signed;

  __device__ __forceinline__ CodeRow(const CodeSegment& segment, std::int64_t n,
                                     std::int64_t columns, int q)
      : weight(segment.weight) {
    const std::int64_t padded = padded_columns(columns);
    low = weight.codes + n * (padded * Planes<bits>::kLowBits / 8) + q * 4;
    high = bits == 3 ? weight.high + n * (padded / 8) + q * 4 : nullptr;
    first_group = n * (weight.group == 0 ? 1 : padded / weight.group);
    is_signed = bits == 8 && weight.zeros == nullptr;
  }
  __device__ __forceinline__ const std::uint8_t* at(int index) const {
    return low + std::int64_t{index} * 16;
  }
  __device__ __forceinline__ Piece load(int index) const {
    Piece piece = {*reinterpret_cast<const std::uint32_t*>(at(index)), 0};
    if constexpr (bits == 3) {
      // 16 bytes hold the third bits of two pieces.
      piece.high = *reinterpret_cast<const std::uint32_t*>(high + std::int64_t{index / 2} * 16) >>
                   index % 2 * 4;
    }
    return piece;
  }
  __device__ __forceinline__ void widen(const Piece& piece, int index, int block,
                                        float (&w)[4]) const {
    const int column = (index * kBlocks + block) * 16;
    const std::int64_t at = first_group + (weight.group == 0 ? 0 : column / weight.group);
    const float scale = weight.group == 0
                            ? weight.row_scales[at]
                            : ptx::f16_to_f32(weight.group_scales[at]) * weight.scale_mul;
    const int zero = weight.zeros == nullptr ? weight.zero : weight.zeros[at];
    const std::uint32_t codes = code_quad<bits>(piece.low, piece.high, block, 0);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto byte = static_cast<std::uint8_t>(codes >> 8 * i);
      const int code = is_signed ? static_cast<std::int8_t>(byte) : byte;
      w[i] = static_cast<float>(code - zero) * scale;
    }
  }
};

// Sums of the four threads' lanes of a row: lanes +8, +4, +2, +1.
__device__ __forceinline__ float chain_total(const float (&lanes)[4]) {
  float sums[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[i] = lanes[i] + __shfl_xor_sync(kEveryLane, lanes[i], 2);
    sums[i] = sums[i] + __shfl_xor_sync(kEveryLane, sums[i], 1);
  }
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

// Pieces of a row. Behind the columns both weights and inputs are padded with zeros, up to 32.
template <class Row>
__device__ __forceinline__ int pieces_of(std::int64_t columns) {
  const int blocks = static_cast<int>((columns + 15) / 16);
  return (blocks + Row::kBlocks - 1) / Row::kBlocks;
}

// The first four pieces of row n, on their way while the kernel in front still runs.
template <class Row, class Arguments, class Segment>
__device__ __forceinline__ void prefetch_row(const Arguments& a, const Segment& segment,
                                             std::int64_t n) {
  const int q = static_cast<int>(threadIdx.x % 4);
  const Row row(segment, min(n, segment.rows - 1), a.columns, q);
  ptx::prefetch(row.at(min(q, pieces_of<Row>(a.columns) - 1)));
}

// y[t] of row n of a segment and the tokens from `first` on, in all four threads of the row.
template <class Row, int tokens, class Arguments, class Segment>
__device__ __forceinline__ void row_values(const Arguments& a, const Segment& segment,
                                           std::int64_t n, std::int64_t first, float (&y)[tokens]) {
  const int q = static_cast<int>(threadIdx.x % 4);
  const std::int64_t exists = min(n, segment.rows - 1);
  const Row row(segment, exists, a.columns, q);
  const float* x[tokens];
#pragma unroll
  for (int t = 0; t < tokens; ++t) {
    x[t] = a.x.values + min(first + t, a.tokens - 1) * a.x.stride + q * 4;
  }
  float lanes[tokens][4] = {};
  const int blocks = static_cast<int>((a.columns + 15) / 16), pieces = pieces_of<Row>(a.columns);
  const auto multiply = [&](const typename Row::Piece& piece, int index) {
#pragma unroll
    for (int block = 0; block < Row::kBlocks; ++block) {
      const int at = index * Row::kBlocks + block;
      if (at >= blocks) break;
      float w[4];
      row.widen(piece, index, block, w);
#pragma unroll
      for (int t = 0; t < tokens; ++t) {
        const float4 values = *reinterpret_cast<const float4*>(x[t] + at * 16);
        lanes[t][0] = fmaf(values.x, w[0], lanes[t][0]);
        lanes[t][1] = fmaf(values.y, w[1], lanes[t][1]);
        lanes[t][2] = fmaf(values.z, w[2], lanes[t][2]);
        lanes[t][3] = fmaf(values.w, w[3], lanes[t][3]);
      }
    }
  };
  // Four loads are on their way before the first is used.
  int index = 0;
  for (; index + 4 <= pieces; index += 4) {
    typename Row::Piece loaded[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) loaded[i] = row.load(index + i);
#pragma unroll
    for (int i = 0; i < 4; ++i) multiply(loaded[i], index + i);
  }
  for (; index < pieces; ++index) multiply(row.load(index), index);
#pragma unroll
  for (int t = 0; t < tokens; ++t) {
    y[t] = chain_total(lanes[t]);
    if (segment.bias != nullptr) y[t] = y[t] + segment.bias[exists];
  }
}

// Block x: rows of one segment (with swiglu of gate, and the same of up); block y: tokens.
template <class Row, int tokens, class Arguments>
__global__ void __launch_bounds__(kFloatWarps * 32, 1)
    float_rows(const LEQ_GRID_CONSTANT Arguments a) {
  LEQ_BOUNDS(kFloatWarps * 32);
  const bool paired = a.finish == Finish::swiglu;
  int segment = 0;
  std::int64_t tile = blockIdx.x, column = 0;
  while (!paired && segment + 1 < a.segment_count) {
    const std::int64_t tiles = (a.segments[segment].rows + kFloatRows - 1) / kFloatRows;
    if (tile < tiles) break;
    tile -= tiles;
    column += a.segments[segment++].rows;
  }
  const std::int64_t n = tile * kFloatRows + threadIdx.x / 4;
  const std::int64_t first = std::int64_t{blockIdx.y} * tokens;
  float y[tokens], up[tokens] = {};
  prefetch_row<Row>(a, a.segments[segment], n);
  if (paired) prefetch_row<Row>(a, a.segments[1], n);
  ptx::wait_for_predecessor();
  row_values<Row>(a, a.segments[segment], n, first, y);
  if (paired) row_values<Row>(a, a.segments[1], n, first, up);
  ptx::let_successor_start();
  if (n >= a.segments[segment].rows) return;
#pragma unroll
  for (int t = 0; t < tokens; ++t) {
    if (t % 4 != static_cast<int>(threadIdx.x % 4) || first + t >= a.tokens) continue;
    finish(a.finish, a.out, first + t, column + n, y[t], up[t]);
  }
}

}  // namespace leq::LEQ_GPU
