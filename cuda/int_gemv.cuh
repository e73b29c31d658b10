// Few tokens (up to 8, up to 4 below 8 bits) times a weight of 8, 4, 3 or 2 bits by dp4a: each warp
// owns some rows of the weight, and its lanes walk them in pieces of 16 bytes (docs/cuda.md).
#pragma once

#include "cuda/matmul_finish.cuh"
#include "cuda/planes.cuh"
#include "cuda/reduce.cuh"

namespace leq::LEQ_GPU {

inline constexpr int kGemvWarps = 8;
template <int bits>
inline constexpr int kGemvRows =
    bits == 8 || bits == 3 ? 2 : 4;  // of a warp; they share the inputs
// More tokens would not fit into registers, and are faster on the tensor cores.
constexpr int gemv_tokens(int bits) { return bits == 8 ? 8 : 4; }

// Warps that the rows of one weight take: whole blocks, a block never mixes weights. With swiglu a
// warp has half of its rows in gate and half in up, and `rows` are those of one of them.
template <int bits>
constexpr int gemv_warps(std::int64_t rows, bool paired) {
  const std::int64_t rows_of_block = kGemvRows<bits> * kGemvWarps / (paired ? 2 : 1);
  return static_cast<int>((rows + rows_of_block - 1) / rows_of_block) * kGemvWarps;
}

// The rows of one warp, in two halves: neighbours, or with swiglu rows of gate and the same of up.
// All of them have codes and scales: weights are padded to 64 rows.
template <int bits>
struct GemvRows {
  static constexpr int kRows = kGemvRows<bits>, kHalf = kRows / 2;
  int segment[2];
  int first[2];
  std::int64_t column;  // of the output, where the row first[0] goes

  __device__ __forceinline__ explicit GemvRows(const IntMatmul& a) : segment{0, 0}, column(0) {
    const bool paired = a.finish == Finish::swiglu;
    int warp = static_cast<int>(blockIdx.x) * kGemvWarps + static_cast<int>(threadIdx.x / 32);
    while (!paired && segment[0] + 1 < a.segment_count) {
      const int warps = gemv_warps<bits>(a.segments[segment[0]].rows, false);
      if (warp < warps) break;
      warp -= warps;
      column += a.segments[segment[0]].rows;
      ++segment[0];
    }
    segment[1] = paired ? 1 : segment[0];
    first[0] = warp * (paired ? kHalf : kRows);
    first[1] = paired ? first[0] : first[0] + kHalf;
    column += first[0];
  }

  __device__ __forceinline__ int row(int r) const { return first[r / kHalf] + r % kHalf; }
  __device__ __forceinline__ const CodeSegment& of(const IntMatmul& a, int r) const {
    return a.segments[segment[r / kHalf]];
  }
};

// Totals over all lanes of `count` (a power of two, at most 32) numbers: lane l gets that of number
// l % count. Halves are exchanged, so that it costs about as many shuffles as there are numbers.
template <int count, class T>
__device__ __forceinline__ T scattered_totals(const T (&values)[count]) {
  if constexpr (count == 1) {
    return values[0];
  } else {
    constexpr int kHalf = count / 2;
    const bool upper = (threadIdx.x & kHalf) != 0;
    T sums[kHalf];
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const T keep = upper ? values[i + kHalf] : values[i];
      const T give = upper ? values[i] : values[i + kHalf];
      sums[i] = keep + __shfl_xor_sync(kEveryLane, give, kHalf);
    }
    return scattered_totals(sums);
  }
}
template <int count, class T>
__device__ __forceinline__ T warp_totals(const T (&values)[count]) {
  T total = scattered_totals(values);
#pragma unroll
  for (int step = count; step < 32; step *= 2) {
    total += __shfl_xor_sync(kEveryLane, total, step);
  }
  return total;
}

// int32 sums of kRows rows times some tokens.
template <int bits, int tokens>
struct GemvTile {
  static constexpr int kRows = kGemvRows<bits>;
  int sums[kRows * tokens];

  __device__ __forceinline__ void start(int value) {
#pragma unroll
    for (int i = 0; i < kRows * tokens; ++i) sums[i] = value;
  }

  // Adds the products of `runs` runs of 16 columns, from `first` on, of a piece.
  template <int runs>
  __device__ __forceinline__ void multiply(const Piece<bits> (&pieces)[kRows], int first,
                                           const std::int8_t* inputs, const int (&token_at)[tokens],
                                           std::uint32_t flip) {
#pragma unroll
    for (int run = first; run < first + runs; ++run) {
#pragma unroll
      for (int t = 0; t < tokens; ++t) {
        const uint4 x = *reinterpret_cast<const uint4*>(inputs + token_at[t] + run * 16);
        const std::uint32_t quads[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int word = 0; word < 4; ++word) {
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            const std::uint32_t codes = pieces[r].quad(run, word, flip);
            sums[r * tokens + t] = ptx::dp4a(codes, quads[word], sums[r * tokens + t]);
          }
        }
      }
    }
  }
};

// Part of a group's sum to its place in `integers`.
__device__ __forceinline__ void add_integer(const IntMatmul& a, int group, std::int64_t token,
                                            std::int64_t column, int sum) {
  atomicAdd(a.integers + (group * a.tokens + token) * output_columns(a) + column, sum);
}

// A lane's part of one group's sums, from `column` on, to the totals.
template <int bits, int tokens, class Sum>
__device__ __forceinline__ void flush(const IntMatmul& a, const Grouping& grouping,
                                      const GemvRows<bits>& rows,
                                      const GemvTile<bits, tokens>& tile, int column,
                                      Sum (&totals)[kGemvRows<bits> * tokens]) {
  // The zero point is taken off once for each group: by the lane that holds its first columns.
  const bool first = a.x.sums != nullptr && column % grouping.group == 0;
#pragma unroll
  for (int t = 0; t < tokens; ++t) {
    const std::int64_t token = min(std::int64_t{t}, a.tokens - 1);
    const float token_scale =
        a.x.group > 0 ? a.x.scales[token * a.x.scale_stride + column / a.x.group] : 1.0f;
    const int token_sum = first ? a.x.sums[token * a.x.sum_stride + column / grouping.group] : 0;
#pragma unroll
    for (int r = 0; r < kGemvRows<bits>; ++r) {
      const CodeSegment& segment = rows.of(a, r);
      const RowGroup group = row_group(segment.weight, grouping, rows.row(r), column);
      const int i = r * tokens + t;
      const int sum = tile.sums[i] - group.zero * token_sum;
      if constexpr (Sum::kIntegers) {
        if (t >= a.tokens || rows.row(r) >= segment.rows) continue;
        add_integer(a, column / grouping.group, t, rows.column + rows.row(r) - rows.first[0], sum);
      } else {
        totals[i].add(sum, group.scale * token_scale);
      }
    }
  }
}

// This lane's part of every sum: the tile where nothing is grouped, else the totals.
template <int bits, int tokens, bool grouped, class Sum>
__device__ __forceinline__ void walk(const IntMatmul& a, const Grouping& grouping,
                                     const GemvRows<bits>& rows, GemvTile<bits, tokens>& tile,
                                     Sum (&totals)[kGemvRows<bits> * tokens]) {
  using Layout = Planes<bits>;
  constexpr int kRuns = Layout::kRuns < 2 ? 1 : 2;  // of a flush: at most 32 columns, a least group
  [[maybe_unused]] constexpr int kUnrolled = kGemvRows<bits> * tokens <= 4 ? 2 : 1;
  int token_at[tokens];
#pragma unroll
  for (int t = 0; t < tokens; ++t) {
    token_at[t] = static_cast<int>(min(std::int64_t{t}, a.tokens - 1) * a.x.code_stride);
  }
  const std::uint32_t flip = byte_flip(a.segments[0].weight);
  const bool exists = rows.row(0) < rows.of(a, 0).rows;
  const int pieces = exists ? grouping.columns / Layout::kColumns : 0;
#pragma unroll kUnrolled
  for (int index = static_cast<int>(threadIdx.x % 32); index < pieces; index += 32) {
    Piece<bits> loaded[kGemvRows<bits>];
#pragma unroll
    for (int r = 0; r < kGemvRows<bits>; ++r) {
      const CodeWeight& weight = rows.of(a, r).weight;
      const std::int64_t columns = std::int64_t{rows.row(r)} * grouping.columns;
      loaded[r] = load_piece<bits>(weight.codes + columns * Layout::kLowBits / 8,
                                   weight.high + columns / 8, index);
    }
    const int column = index * Layout::kColumns;
    const std::int8_t* const inputs = a.x.codes + column;
    if constexpr (!grouped) {
      tile.template multiply<Layout::kRuns>(loaded, 0, inputs, token_at, flip);
    } else {
#pragma unroll
      for (int run = 0; run < Layout::kRuns; run += kRuns) {
        tile.start(Sum::kStart);
        tile.template multiply<kRuns>(loaded, run, inputs, token_at, flip);
        flush<bits, tokens>(a, grouping, rows, tile, column + run * 16, totals);
      }
    }
  }
}

// a.tokens <= tokens. `grouped`: scales of the weights or of the tokens belong to groups.
template <int bits, int tokens, bool grouped, class Sum>
__global__ void __launch_bounds__(kGemvWarps * 32, 2)
    int_gemv(const LEQ_GRID_CONSTANT IntMatmul a) {
  LEQ_BOUNDS(kGemvWarps * 32);
  constexpr int kItems = kGemvRows<bits> * tokens;
  const Grouping grouping(a);
  const GemvRows<bits> rows(a);
  GemvTile<bits, tokens> tile;
  Sum totals[kItems];
  tile.start(0);
  walk<bits, tokens, grouped>(a, grouping, rows, tile, totals);
  if constexpr (grouped && Sum::kIntegers) return;

  // Lane l finishes number l of the warp's: row l / tokens, token l % tokens.
  const int item = static_cast<int>(threadIdx.x) % kItems, token = item % tokens;
  const bool upper = item >= kItems / 2;
  const CodeSegment& segment = a.segments[upper ? rows.segment[1] : rows.segment[0]];
  const int row = (upper ? rows.first[1] : rows.first[0]) + item / tokens % rows.kHalf;
  const std::int64_t column = rows.column + item / tokens;
  const bool stores = threadIdx.x % 32 < kItems && row < segment.rows && token < a.tokens;
  float sum;
  if constexpr (grouped) {
    float parts[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) parts[i] = totals[i].total;
    sum = warp_totals(parts);
  } else {
    int total = warp_totals(tile.sums);
    if (stores && a.x.sums != nullptr) {
      total -= row_group(segment.weight, grouping, row, 0).zero * a.x.sums[token * a.x.sum_stride];
    }
    if constexpr (Sum::kIntegers) {
      if (stores) add_integer(a, 0, token, column, total);
      return;
    }
    sum = static_cast<float>(total);
  }
  const bool paired = a.finish == Finish::swiglu;
  const float y = stores ? finished_sum(a, segment, row, token, sum) : 0.0f;
  const float up = __shfl_xor_sync(kEveryLane, y, kItems / 2);
  if (stores && !(paired && upper)) finish(a.finish, a.out, token, column, y, up);
}

}  // namespace leq::LEQ_GPU
