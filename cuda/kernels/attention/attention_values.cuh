// Weighted sums of a span's values in a block of the exact attention kernel.
#pragma once

#include "cuda/kernels/attention/attention_work.cuh"

namespace leq::LEQ_GPU {

// Returns the numbers of columns c and c + 1 (c is even), converted from their stored type.
template <KvType type>
__device__ __forceinline__ float2 two_numbers(const unsigned char* row, int c) {
  if constexpr (type == KvType::f32) return *reinterpret_cast<const float2*>(row + c * 4);
  if constexpr (type == KvType::f16) {
    const std::uint32_t pair = *reinterpret_cast<const std::uint32_t*>(row + c * 2);
    return {ptx::f16_to_f32(static_cast<std::uint16_t>(pair)),
            ptx::f16_to_f32(static_cast<std::uint16_t>(pair >> 16))};
  }
  // A float with the bits of 2^23 + code, less 2^23, costs less than a conversion.
  const std::uint32_t pair = *reinterpret_cast<const std::uint16_t*>(row + c);
  return {__uint_as_float(0x4b000000u | (pair & 0xffu)) - 8388608.0f,
          __uint_as_float(0x4b000000u | pair >> 8) - 8388608.0f};
}

// The two neighbouring output columns that a thread accumulates, for every `step`-th query. Idle
// threads repeat the last two columns and store nothing.
struct ValueShare {
  int column;
  bool stores;
  int first, step;  // first query, and the distance to the next

  __device__ __forceinline__ ValueShare(int base, int dims) {
    const int thread = static_cast<int>(threadIdx.x);
    const int pairs = min((dims - base) / 2, kAttentionThreads);
    step = kAttentionThreads / pairs;
    first = min(thread / pairs, step - 1);
    stores = thread / pairs < step;
    column = base + thread % pairs * 2;
  }
  __device__ __forceinline__ int query(int i) const { return first + i * step; }
};

template <int queries>
using ValueSums = float[2][queries];

// o = fma(w, v, o) over a tile's positions in ascending order; all of them must be visible.
template <int queries, KvType type>
__device__ __forceinline__ void add_whole_tile(const Work<queries>& work, const KvTiles& values,
                                               int first, const unsigned char* tile,
                                               const ValueShare& share, ValueSums<queries>& sums) {
  for (int slot = 0; slot < values.positions; slot += 4) {
    float2 v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      v[j] = two_numbers<type>(tile + (slot + j) * values.stride(), share.column);
    }
    const float* const weights = work.scores + (first + slot) % kSpanTokens;
#pragma unroll
    for (int i = 0; i < queries; ++i) {
      const int q = share.query(i);
      if (q >= queries) continue;
      const float4 w = *reinterpret_cast<const float4*>(weights + q * kSpanTokens);
      const float each[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sums[0][i] = fmaf(each[j], v[j].x, sums[0][i]);
        sums[1][i] = fmaf(each[j], v[j].y, sums[1][i]);
      }
    }
  }
}

// o = fma(w, v, o) over the positions of a tile that each query sees, in ascending order.
template <int queries, KvType type>
__device__ __forceinline__ void add_partial_tile(const Work<queries>& work, const KvTiles& values,
                                                 Positions span, int first,
                                                 const unsigned char* tile, const ValueShare& share,
                                                 ValueSums<queries>& sums) {
#pragma unroll
  for (int i = 0; i < queries; ++i) {
    const int q = share.query(i);
    if (q >= work.block.queries()) continue;
    const Positions seen = work.seen_in(q, span);
    const int last = min(seen.last, first + values.positions);
    for (int j = max(seen.first, first); j < last; ++j) {
      const float2 v = two_numbers<type>(tile + (j - first) * values.stride(), share.column);
      const float weight = work.scores[q * kSpanTokens + j % kSpanTokens];
      sums[0][i] = fmaf(weight, v.x, sums[0][i]);
      sums[1][i] = fmaf(weight, v.y, sums[1][i]);
    }
  }
}

template <int queries, KvType type>
__device__ __forceinline__ void add_tile(const Work<queries>& work, const KvTiles& values,
                                         Positions span, int index, const unsigned char* tile,
                                         const ValueShare& share, ValueSums<queries>& sums) {
  const int first = index * values.positions, last_query = work.block.queries() - 1;
  if (work.seen_in(last_query, span).first <= first &&
      work.seen_in(0, span).last >= first + values.positions) {
    add_whole_tile<queries, type>(work, values, first, tile, share, sums);
  } else {
    add_partial_tile<queries, type>(work, values, span, first, tile, share, sums);
  }
}

// Computes O = fma(o, b, O a) in shared memory, where o includes the minima of the values.
template <int queries>
__device__ __forceinline__ void join_span(const Work<queries>& work, const ValueShare& share,
                                          const ValueSums<queries>& sums) {
  const QueryFacts<queries>& facts = *work.facts;
  const bool coded = stored_coded(work.a.values.type);
  if (!share.stores) return;
#pragma unroll
  for (int i = 0; i < queries; ++i) {
    const int q = share.query(i);
    if (q >= work.block.queries() || facts.take[q] < 0.0f) continue;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      float& out = work.out[q * work.layout.query_stride + share.column + k];
      const float o = coded ? sums[k][i] + facts.shift[q] : sums[k][i];
      out = fmaf(o, facts.take[q], out * facts.keep[q]);
    }
  }
}

template <int queries>
__device__ __forceinline__ void add_values(const Work<queries>& work, Positions span,
                                           Positions seen, int positions) {
  const KvTiles values(work.a, work.a.values, work.block, work.tiles, positions);
  for (int base = 0; base < work.a.heads.head_dim; base += 2 * kAttentionThreads) {
    const ValueShare share(base, work.a.heads.head_dim);
    ValueSums<queries> sums = {};
    values.walk(seen, [&](int index, const unsigned char* tile) {
      switch (work.a.values.type) {
        case KvType::f32:
          return add_tile<queries, KvType::f32>(work, values, span, index, tile, share, sums);
        case KvType::f16:
          return add_tile<queries, KvType::f16>(work, values, span, index, tile, share, sums);
        case KvType::int8:
          return add_tile<queries, KvType::int8>(work, values, span, index, tile, share, sums);
        default:  // packed codes: attention_exact_packed.cu
          return;
      }
    });
    join_span(work, share, sums);
  }
  __syncthreads();
}

}  // namespace leq::LEQ_GPU
