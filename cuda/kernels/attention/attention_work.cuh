// Data of a block of the exact attention kernel: queries, scores and outputs in shared memory.
#pragma once

#include "cuda/kernels/attention/attention_block.cuh"
#include "cuda/kernels/rows/quantize.cuh"

namespace leq::LEQ_GPU {

inline constexpr int kQueryFacts = 7;

// Sizes of the parts of a block's shared memory.
struct AttentionMemory {
  int query_stride;  // in floats; with int8 keys a float holds four codes
  int tile_bytes;    // bytes of one tile
  int floats;        // before the tiles

  __host__ __device__ AttentionMemory(const AttentionArguments& a, int queries, int positions) {
    const int dims = a.heads.head_dim;
    query_stride = static_cast<int>(round_up_to(dims, 16));
    const int row = max(static_cast<int>(kv_row_bytes(dims, stored_number_bytes(a.keys.type))),
                        static_cast<int>(kv_row_bytes(dims, stored_number_bytes(a.values.type))));
    tile_bytes = positions * (row + 16);
    floats = queries * (2 * query_stride + kSpanTokens) +
             static_cast<int>(round_up_to(queries * kQueryFacts, 4));
  }
  __host__ __device__ int bytes() const { return floats * 4 + 2 * tile_bytes; }
};

// Further numbers of each query; a query has kQueryFacts floats.
template <int queries>
struct QueryFacts {
  float code_scale[queries], code_sum[queries];  // scale and sum of a query's codes, for int8 keys
  float shift[queries];                          // sum of p * m over the span, for int8 values
  float keep[queries], take[queries];            // factors of the earlier spans and of this span
  float largest[queries], total[queries];        // M and L so far
};

template <int queries>
struct Work {
  const AttentionArguments& a;
  QueryBlock block;
  AttentionMemory layout;
  float* query;   // [queries][query_stride]
  float* scores;  // [queries][512] scores, then weights of the values
  float* out;     // [queries][query_stride]
  QueryFacts<queries>* facts;
  unsigned char* tiles;

  static_assert(sizeof(QueryFacts<queries>) == sizeof(float) * kQueryFacts * queries);

  __device__ __forceinline__ Work(const AttentionArguments& arguments, const QueryBlock& which,
                                  int positions, float* memory)
      : a(arguments), block(which), layout(arguments, queries, positions) {
    query = memory;
    scores = query + queries * layout.query_stride;
    out = scores + queries * kSpanTokens;
    facts = reinterpret_cast<QueryFacts<queries>*>(out + queries * layout.query_stride);
    tiles = reinterpret_cast<unsigned char*>(memory + layout.floats);
  }
  __device__ __forceinline__ std::int8_t* codes(int q) const {
    return reinterpret_cast<std::int8_t*>(query + q * layout.query_stride);
  }
  __device__ __forceinline__ Positions seen_in(int q, Positions span) const {
    const Positions seen = block.seen_by(q);
    return {max(seen.first, span.first), min(seen.last, span.last)};
  }
};

// One warp per query loads the query; if keys are int8, it quantizes the query to codes.
template <int queries>
__device__ __forceinline__ void load_queries(const Work<queries>& work) {
  const int lane = static_cast<int>(threadIdx.x % 32), dims = work.a.heads.head_dim;
  const bool coded = stored_coded(work.a.keys.type);
  for (int q = static_cast<int>(threadIdx.x / 32); q < queries; q += kAttentionThreads / 32) {
    for (int c = lane; c < work.layout.query_stride; c += 32) {
      work.query[q * work.layout.query_stride + c] = 0;
      work.out[q * work.layout.query_stride + c] = 0;
    }
    if (lane == 0) work.facts->total[q] = 0;
    __syncwarp();
    if (q >= work.block.queries()) continue;
    const std::int64_t row = work.block.row + q / work.block.heads;
    const int head = work.block.head + q % work.block.heads;
    const float* x = work.a.qkv.values + row * work.a.qkv.stride + std::int64_t{head} * dims;
    if (!coded) {
      for (int c = lane; c < dims; c += 32) work.query[q * work.layout.query_stride + c] = x[c];
      continue;
    }
    unsigned largest = 0;
    for (int c = lane; c < dims; c += 32) largest = max(largest, magnitude_bits(x[c]));
    const StepSize step = step_size(warp_max(largest));
    int sum = 0;
    for (int c = lane; c < dims; c += 32) {
      const int code = code_of(x[c], step.inverse);
      work.codes(q)[c] = static_cast<std::int8_t>(code);
      sum += code;
    }
    sum = warp_sum(sum);
    if (lane == 0) {
      work.facts->code_scale[q] = step.scale;
      work.facts->code_sum[q] = static_cast<float>(sum);
    }
  }
  __syncthreads();
}

}  // namespace leq::LEQ_GPU
