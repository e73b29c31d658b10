// Tokens times weights of a k type by dp4a. Each lane has a row, the warps of a block take spans of
// columns in turn, and one thread per output adds the spans in ascending order.
#include <algorithm>

#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/matmul/int_matmul.h"
#include "cuda/kernels/matmul/matmul_finish.cuh"
#include "cuda/kernels/matmul/super_row.cuh"
#include "sampling/sample.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;

// The capacity of the queue of spans whose sums are not added yet.
template <int tokens>
constexpr int kRound = tokens == 1 ? 64 : 16;

// A span's part of an output: the sum of s * (codes times inputs), and the sum of m * inputs.
struct SpanSums {
  int products, inputs;
};

// The address of a token's codes; tokens past the last one repeat the last one.
template <int tokens>
__device__ __forceinline__ const std::int8_t* inputs_of(const SuperMatmul& a, std::int64_t token) {
  return a.x.codes + min(token, a.tokens - 1) * a.x.code_stride;
}

// The sums over columns [first, last) of one row, for `tokens` tokens.
template <int bits, int tokens>
__device__ __forceinline__ void span_sums(const SuperMatmul& a, const SuperRow<bits>& row,
                                          std::int64_t token, int first, int last,
                                          SpanSums (&sums)[tokens]) {
#pragma unroll
  for (int t = 0; t < tokens; ++t) sums[t] = {0, 0};
  for (int k = first; k < last; k += kSubColumns<bits>) {
    int products[tokens] = {}, inputs[tokens] = {};
#pragma unroll
    for (int i = 0; i < kSubColumns<bits>; i += 4) {
      const std::uint32_t codes = row.quad(k + i);
#pragma unroll
      for (int t = 0; t < tokens; ++t) {
        const auto x =
            *reinterpret_cast<const std::uint32_t*>(inputs_of<tokens>(a, token + t) + k + i);
        products[t] = ptx::dp4a_u8s8(codes, x, products[t]);
        inputs[t] = ptx::dp4a_u8s8(kOnes, x, inputs[t]);
      }
    }
    const int scale = row.scale(k), minimum = row.minimum(k);
#pragma unroll
    for (int t = 0; t < tokens; ++t) {
      sums[t].products += scale * (products[t] - (bits == 6 ? 32 * inputs[t] : 0));
      sums[t].inputs += minimum * inputs[t];
    }
  }
}

// The rows of a block: 32 rows of one segment; if gated rows of gate, and the same rows of up.
struct SuperBlock {
  int segment = 0;
  std::int64_t row = 0, column = 0;  // the lane's row, and its output column

  __device__ __forceinline__ explicit SuperBlock(const SuperMatmul& a) {
    std::int64_t block = blockIdx.x;
    while (!is_gated(a.finish) && segment + 1 < a.segment_count) {
      const std::int64_t blocks = (a.segments[segment].rows + 31) / 32;
      if (block < blocks) break;
      block -= blocks;
      column += a.segments[segment].rows;
      ++segment;
    }
    row = block * 32 + threadIdx.x % 32;
    column += row;
  }
};

// y of row `at` and of token `threadIdx.x / 32` of the block; valid in the first `tokens` warps.
template <int bits, int tokens>
__device__ float multiply_rows(const SuperMatmul& a, const SuperSegment& segment, std::int64_t at,
                               std::int64_t token, SpanSums* waiting) {
  const std::int64_t padded = round_up_to(a.columns, 128);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int span = a.x.group > 0 ? a.x.group : 128, columns = static_cast<int>(padded);
  const int spans = static_cast<int>((a.columns + span - 1) >> group_shift(span));
  const SuperRow<bits> row(segment.weight, at, padded);
  const float* const scales = a.x.scales + min(token + warp, a.tokens - 1) * a.x.scale_stride;
  float f = 0;
  for (int first = 0; first < spans; first += kRound<tokens>) {
    const int last = min(first + kRound<tokens>, spans);
    for (int s = first + warp; s < last; s += kWarps) {
      SpanSums sums[tokens];
      span_sums<bits, tokens>(a, row, token, s * span, min((s + 1) * span, columns), sums);
#pragma unroll
      for (int t = 0; t < tokens; ++t) waiting[((s - first) * tokens + t) * 32 + lane] = sums[t];
    }
    __syncthreads();
    for (int s = first; s < last && warp < tokens; ++s) {
      const SpanSums sums = waiting[((s - first) * tokens + warp) * 32 + lane];
      const float by_token = scales[a.x.group > 0 ? s : 0];
      const int k = s * span;
      f = fmaf(static_cast<float>(sums.products), row.super(k, 0) * by_token, f);
      if constexpr (bits != 6) {
        f = fmaf(-static_cast<float>(sums.inputs), row.super(k, 1) * by_token, f);
      }
    }
    __syncthreads();
  }
  return segment.bias != nullptr && at < segment.rows ? f + segment.bias[at] : f;
}

// Prefetches codes of the block's rows while the preceding kernel is still running.
template <int bits>
__device__ __forceinline__ void prefetch_rows(const SuperMatmul& a, const SuperSegment& segment,
                                              std::int64_t at) {
  const std::int64_t padded = round_up_to(a.columns, 128);
  const int k = static_cast<int>(threadIdx.x) * 8;  // a word has 8 columns of a row
  if (k >= padded) return;
  const SuperRow<bits> row(segment.weight, at - threadIdx.x % 32, padded);
  ptx::prefetch(row.codes + k / 8 * 256);
  if constexpr (bits > 4) ptx::prefetch(row.high + k * (bits - 4) / 32 * 256);
}

template <int bits, int tokens>
__global__ void __launch_bounds__(kThreads, 2) super_gemv(const LEQ_GRID_CONSTANT SuperMatmul a) {
  LEQ_BOUNDS(kThreads);
  LEQ_DYNAMIC_SHARED(SpanSums, waiting);
  const SuperBlock block(a);
  const std::int64_t first = std::int64_t{blockIdx.y} * tokens, token = first + threadIdx.x / 32;
  const SuperSegment& segment = a.segments[block.segment];
  prefetch_rows<bits>(a, segment, block.row);
  if (is_gated(a.finish)) prefetch_rows<bits>(a, a.segments[1], block.row);
  ptx::wait_for_predecessor();
  const float y = multiply_rows<bits, tokens>(a, segment, block.row, first, waiting);
  float up = 0;
  if (is_gated(a.finish)) {
    up = multiply_rows<bits, tokens>(a, a.segments[1], block.row, first, waiting);
  }
  ptx::let_successor_start();
  if (threadIdx.x / 32 >= tokens || token >= a.tokens || block.row >= segment.rows) return;
  finish(a.finish, a.out, token, block.column, y, up);
}

template <int bits, int tokens>
void launch(const SuperMatmul& a, rt::Stream& stream) {
  std::int64_t blocks = 0;
  for (int i = 0; i < (is_gated(a.finish) ? 1 : a.segment_count); ++i) {
    blocks += (a.segments[i].rows + 31) / 32;
  }
  const std::int64_t groups = (a.tokens + tokens - 1) / tokens;
  rt::run(stream,
          {"super_gemv", dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(groups)),
           dim3(kThreads), kRound<tokens> * tokens * 32 * sizeof(SpanSums), rt::Start::early},
          super_gemv<bits, tokens>, a);
}

template <int bits>
void launch_bits(const SuperMatmul& a, rt::Stream& stream) {
  if (a.tokens == 1) return launch<bits, 1>(a, stream);
  launch<bits, 4>(a, stream);
}

template <int bits>
__device__ float super_number(const SuperWeight& w, std::int64_t row, int k, std::int64_t columns) {
  const SuperRow<bits> of(w, row, columns);
  const int code = static_cast<int>(of.quad(k & -4) >> k % 4 * 8 & 0xffu);
  const float scale = of.super(k, 0) * static_cast<float>(of.scale(k));
  if constexpr (bits == 6) return scale * static_cast<float>(code - 32);
  return scale * static_cast<float>(code) - of.super(k, 1) * static_cast<float>(of.minimum(k));
}

__global__ void __launch_bounds__(kThreads)
    super_embed(const LEQ_GRID_CONSTANT SuperEmbedArguments a) {
  LEQ_BOUNDS(kThreads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const std::int64_t token = blockIdx.x, columns = round_up_to(a.width, 128);
  const std::int32_t id = a.ids[token];
  const std::int64_t row = is_placeholder_id(id) ? max(a.drawn[row_of_placeholder(id)], 0) : id;
  for (int k = static_cast<int>(threadIdx.x); k < a.width; k += kThreads) {
    float value;
    if (a.table.bits == 4) {
      value = super_number<4>(a.table, row, k, columns);
    } else if (a.table.bits == 5) {
      value = super_number<5>(a.table, row, k, columns);
    } else {
      value = super_number<6>(a.table, row, k, columns);
    }
    a.x.values[token * a.x.stride + k] = value * a.scale;
  }
}

}  // namespace

void launch_super_matmul(const SuperMatmul& a, rt::Stream& stream) {
  constexpr std::int64_t kMostTokens = 8;  // two reads of the weights
  if (a.tokens <= 0) return;
  if (a.tokens > kMostTokens) {
    const bool large = gemm_tile(a.tokens, outputs_of(a)) == GemmTile::large;
    return launch_super_gemm(a, large, stream);
  }
  switch (a.segments[0].weight.bits) {
    case 4:
      return launch_bits<4>(a, stream);
    case 5:
      return launch_bits<5>(a, stream);
    default:
      return launch_bits<6>(a, stream);
  }
}

void launch_super_embed(const SuperEmbedArguments& a, rt::Stream& stream) {
  if (a.tokens <= 0) return;
  rt::run(
      stream,
      {"super_embed", dim3(static_cast<unsigned>(a.tokens)), dim3(kThreads), 0, rt::Start::early},
      super_embed, a);
}

}  // namespace leq::LEQ_GPU
