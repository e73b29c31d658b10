// Attention over pages of f32, f16 or int8 for any head size, group and window, in the order of
// docs/numerics.md: spans of 512 positions, each with a softmax of its own, joined in ascending
// order. Few rows: a block for each span, and a second kernel that joins them; many: a block takes
// up to 16 queries that share a kv head through all spans.
#include <algorithm>

#include "cuda/attention_block.cuh"
#include "cuda/float_math.cuh"
#include "cuda/quantize.cuh"
#include "cuda/run.h"

namespace leq::LEQ_GPU {
namespace {

constexpr int kThreads = kAttentionThreads;
constexpr int kMostQueries = 16;

// Shared memory of a block.
struct AttentionMemory {
  int query_stride;  // floats, or with int8 keys four codes each
  int tile_bytes;    // of one tile
  int floats;        // in front of the tiles

  __host__ __device__ AttentionMemory(const AttentionArguments& a, int queries, int positions) {
    const int dims = a.heads.head_dim;
    query_stride = static_cast<int>(round_up_to(dims, 16));
    const int row = max(static_cast<int>(kv_row_bytes(dims, kv_bytes(a.keys.type))),
                        static_cast<int>(kv_row_bytes(dims, kv_bytes(a.values.type))));
    tile_bytes = positions * (row + 16);
    floats = queries * (query_stride + kSpanTokens + query_stride + 8);
  }
  __host__ __device__ int bytes() const { return floats * 4 + 2 * tile_bytes; }
};

// What is known of each query beside its numbers.
template <int queries>
struct QueryFacts {
  float code_scale[queries], code_sum[queries];  // int8 keys
  float shift[queries];                          // of the span's outputs: sum of p * m, int8 values
  float keep[queries], take[queries];            // factors of what was before, and of the span
  float largest[queries], total[queries];        // M and L so far
  float unused[queries];
};

template <int queries>
struct Work {
  const AttentionArguments& a;
  QueryBlock block;
  AttentionMemory layout;
  float* query;   // [queries][query_stride]
  float* scores;  // [queries][512], then weights of the values
  float* out;     // [queries][query_stride]
  QueryFacts<queries>* facts;
  unsigned char* tiles;

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

// A warp for each query: its numbers, or with int8 keys its codes.
template <int queries>
__device__ __forceinline__ void load_queries(const Work<queries>& work) {
  const int lane = static_cast<int>(threadIdx.x % 32), dims = work.a.heads.head_dim;
  const bool coded = work.a.keys.type == KvNumbers::int8;
  for (int q = static_cast<int>(threadIdx.x / 32); q < queries; q += kThreads / 32) {
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

// 16 bytes of a row of floats, from column c on.
template <KvNumbers type>
struct Sixteen {
  static constexpr int kCount = type == KvNumbers::f32 ? 4 : 8;
  float numbers[kCount];

  __device__ __forceinline__ Sixteen(const unsigned char* row, int c) {
    const uint4 words = *reinterpret_cast<const uint4*>(row + c * (16 / kCount));
    const std::uint32_t w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if constexpr (type == KvNumbers::f32) {
        numbers[i] = __uint_as_float(w[i]);
      } else {
        numbers[i] = ptx::f16_to_f32(static_cast<std::uint16_t>(w[i / 2] >> i % 2 * 16));
      }
    }
  }
};

// Number c as stored.
template <KvNumbers type>
__device__ __forceinline__ float one_number(const unsigned char* row, int c) {
  if constexpr (type == KvNumbers::f32) return reinterpret_cast<const float*>(row)[c];
  return ptx::f16_to_f32(reinterpret_cast<const std::uint16_t*>(row)[c]);
}

// Numbers c and c + 1 as stored, c even.
template <KvNumbers type>
__device__ __forceinline__ float2 two_numbers(const unsigned char* row, int c) {
  if constexpr (type == KvNumbers::f32) return *reinterpret_cast<const float2*>(row + c * 4);
  if constexpr (type == KvNumbers::f16) {
    const std::uint32_t pair = *reinterpret_cast<const std::uint32_t*>(row + c * 2);
    return {ptx::f16_to_f32(static_cast<std::uint16_t>(pair)),
            ptx::f16_to_f32(static_cast<std::uint16_t>(pair >> 16))};
  }
  // The bits of 2^23 + code: cheaper than a conversion.
  const std::uint32_t pair = *reinterpret_cast<const std::uint16_t*>(row + c);
  return {__uint_as_float(0x4b000000u | (pair & 0xffu)) - 8388608.0f,
          __uint_as_float(0x4b000000u | pair >> 8) - 8388608.0f};
}

// The queries that a thread scores, with one key of a tile: every `step`-th.
template <int queries>
struct ScoreShare {
  static constexpr int kMost =
      (queries + 1) / 2;  // a tile has at most half as many keys as threads
  int first, step, slot;

  __device__ __forceinline__ explicit ScoreShare(int positions)
      : first(static_cast<int>(threadIdx.x) / positions),
        step(kThreads / positions),
        slot(static_cast<int>(threadIdx.x) % positions) {}
  __device__ __forceinline__ int query(int i) const { return first + i * step; }
};

// One fma chain for each key, columns ascending.
template <int queries, KvNumbers type>
__device__ __forceinline__ void score_floats(const Work<queries>& work, int index, int positions,
                                             const unsigned char* row,
                                             const ScoreShare<queries>& share) {
  constexpr int kMost = ScoreShare<queries>::kMost;
  const int dims = work.a.heads.head_dim, stride = work.layout.query_stride;
  float sums[kMost] = {};
  constexpr int kStep = Sixteen<type>::kCount;
  int c = 0;
  for (; c + kStep <= dims; c += kStep) {
    const Sixteen<type> key(row, c);
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (share.query(i) >= queries) continue;
      const float* const query = work.query + share.query(i) * stride + c;
#pragma unroll
      for (int k = 0; k < kStep; k += 4) {
        const float4 q = *reinterpret_cast<const float4*>(query + k);
        sums[i] = fmaf(q.x, key.numbers[k], sums[i]);
        sums[i] = fmaf(q.y, key.numbers[k + 1], sums[i]);
        sums[i] = fmaf(q.z, key.numbers[k + 2], sums[i]);
        sums[i] = fmaf(q.w, key.numbers[k + 3], sums[i]);
      }
    }
  }
  for (; c < dims; ++c) {
    const float key = one_number<type>(row, c);
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (share.query(i) >= queries) continue;
      sums[i] = fmaf(work.query[share.query(i) * stride + c], key, sums[i]);
    }
  }
  const int at = (index * positions + share.slot) % kSpanTokens;
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    if (share.query(i) < queries) work.scores[share.query(i) * kSpanTokens + at] = sums[i];
  }
}

// score = s_q * fma(s, float(sum u q), m * float(sum q))
template <int queries>
__device__ __forceinline__ void score_codes(const Work<queries>& work, const KvTiles& keys,
                                            int index, const unsigned char* row,
                                            const ScoreShare<queries>& share) {
  constexpr int kMost = ScoreShare<queries>::kMost;
  int sums[kMost] = {};
  for (int c = 0; c < keys.row_bytes; c += 16) {
    const uint4 key = *reinterpret_cast<const uint4*>(row + c);
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (share.query(i) >= queries) continue;
      const uint4 q = *reinterpret_cast<const uint4*>(work.codes(share.query(i)) + c);
      sums[i] = ptx::dp4a_u8s8(key.x, q.x, sums[i]);
      sums[i] = ptx::dp4a_u8s8(key.y, q.y, sums[i]);
      sums[i] = ptx::dp4a_u8s8(key.z, q.z, sums[i]);
      sums[i] = ptx::dp4a_u8s8(key.w, q.w, sums[i]);
    }
  }
  const int j = index * keys.positions + share.slot;
  const KvHeadPage page = keys.page_of(j);
  const float s = ptx::f16_to_f32(page.scales[j % kKvPageTokens]);
  const float m = ptx::f16_to_f32(page.minima[j % kKvPageTokens]);
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const int q = share.query(i);
    if (q >= queries) continue;
    const float low = m * work.facts->code_sum[q];
    work.scores[q * kSpanTokens + j % kSpanTokens] =
        work.facts->code_scale[q] * fmaf(s, static_cast<float>(sums[i]), low);
  }
}

template <int queries>
__device__ __forceinline__ void score_span(const Work<queries>& work, Positions seen,
                                           int positions) {
  const KvTiles keys(work.a, work.a.keys, work.block, work.tiles, positions);
  const ScoreShare<queries> share(positions);
  keys.walk(seen, [&](int index, const unsigned char* tile) {
    const unsigned char* const row = tile + share.slot * keys.stride();
    switch (work.a.keys.type) {
      case KvNumbers::f32:
        return score_floats<queries, KvNumbers::f32>(work, index, positions, row, share);
      case KvNumbers::f16:
        return score_floats<queries, KvNumbers::f16>(work, index, positions, row, share);
      case KvNumbers::int8:
        return score_codes<queries>(work, keys, index, row, share);
    }
  });
}

// A sum of the numbers that lanes 0..15 have, in the order of docs/numerics.md.
__device__ __forceinline__ float sixteen_total(float value) {
  for (int step = 8; step > 0; step /= 2) value += __shfl_xor_sync(kEveryLane, value, step);
  return __shfl_sync(kEveryLane, value, 0);
}

// One warp: scores of a query become weights of its values; returns the sum of p.
template <int queries>
__device__ __forceinline__ float weigh_query(const Work<queries>& work, int q, Positions seen,
                                             float largest) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float* const p = work.scores + q * kSpanTokens;
  for (int j = seen.first + lane; j < seen.last; j += 32) {
    p[j % kSpanTokens] = device_exp(p[j % kSpanTokens] - largest);
  }
  __syncwarp();
  const bool coded = work.a.values.type == KvNumbers::int8;
  const KvTiles values(work.a, work.a.values, work.block, nullptr, 1);
  float total = 0, shift = 0;
  for (int j = seen.first / 16 * 16 + lane; lane < 16 && j < seen.last; j += 16) {
    if (j < seen.first) continue;
    float& weight = p[j % kSpanTokens];
    total += weight;
    if (!coded) continue;
    const KvHeadPage page = values.page_of(j);
    shift = fmaf(weight, ptx::f16_to_f32(page.minima[j % kKvPageTokens]), shift);
    weight = weight * ptx::f16_to_f32(page.scales[j % kKvPageTokens]);
  }
  if (coded) shift = sixteen_total(shift);
  if (lane == 0) work.facts->shift[q] = shift;
  return sixteen_total(total);
}

// A warp for each query: m and l of the span, and how it is joined with the spans before:
//   M' = max(M, m)   a = exp(M - M')   b = exp(m - M')   L = fma(l, b, L a)
template <int queries>
__device__ __forceinline__ void softmax_span(const Work<queries>& work, Positions span) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int q = static_cast<int>(threadIdx.x / 32); q < work.block.queries(); q += kThreads / 32) {
    const Positions seen = work.seen_in(q, span);
    if (seen.empty()) {
      if (lane == 0) work.facts->take[q] = -1.0f;  // takes no part
      continue;
    }
    float m = work.scores[q * kSpanTokens + seen.first % kSpanTokens];
    for (int j = seen.first + lane; j < seen.last; j += 32) {
      m = fmaxf(m, work.scores[q * kSpanTokens + j % kSpanTokens]);
    }
    for (int step = 16; step > 0; step /= 2) m = fmaxf(m, __shfl_xor_sync(kEveryLane, m, step));
    const float l = weigh_query(work, q, seen, m);
    if (lane != 0) continue;
    QueryFacts<queries>& facts = *work.facts;
    const float before = facts.total[q];
    const float joint = before == 0.0f ? m : fmaxf(facts.largest[q], m);
    facts.keep[q] = before == 0.0f ? 0.0f : device_exp(facts.largest[q] - joint);
    facts.take[q] = device_exp(m - joint);
    facts.total[q] = fmaf(l, facts.take[q], before * facts.keep[q]);
    facts.largest[q] = joint;
  }
  __syncthreads();
}

// The two neighbouring columns of the outputs that a thread adds up, for every `step`-th query.
// Idle threads repeat the last two, and store nothing.
struct ValueShare {
  int column;
  bool stores;
  int first, step;  // of the queries

  __device__ __forceinline__ ValueShare(int base, int dims) {
    const int thread = static_cast<int>(threadIdx.x);
    const int pairs = min((dims - base) / 2, kThreads);
    step = kThreads / pairs;
    first = min(thread / pairs, step - 1);
    stores = thread / pairs < step;
    column = base + thread % pairs * 2;
  }
  __device__ __forceinline__ int query(int i) const { return first + i * step; }
};

template <int queries>
using ValueSums = float[2][queries];

// o = fma(w, v, o) for the positions of a tile, ascending: all queries see all of it.
template <int queries, KvNumbers type>
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

// The same where some positions are not seen by some queries: they are skipped.
template <int queries, KvNumbers type>
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

template <int queries, KvNumbers type>
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

// O = fma(o, b, O a) in shared memory, o with the values' minima.
template <int queries>
__device__ __forceinline__ void join_span(const Work<queries>& work, const ValueShare& share,
                                          const ValueSums<queries>& sums) {
  const QueryFacts<queries>& facts = *work.facts;
  const bool coded = work.a.values.type == KvNumbers::int8;
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
  for (int base = 0; base < work.a.heads.head_dim; base += 2 * kThreads) {
    const ValueShare share(base, work.a.heads.head_dim);
    ValueSums<queries> sums = {};
    values.walk(seen, [&](int index, const unsigned char* tile) {
      switch (work.a.values.type) {
        case KvNumbers::f32:
          return add_tile<queries, KvNumbers::f32>(work, values, span, index, tile, share, sums);
        case KvNumbers::f16:
          return add_tile<queries, KvNumbers::f16>(work, values, span, index, tile, share, sums);
        case KvNumbers::int8:
          return add_tile<queries, KvNumbers::int8>(work, values, span, index, tile, share, sums);
      }
    });
    join_span(work, share, sums);
  }
  __syncthreads();
}

// A finished query's numbers: to the output, or (split) with M and L to the span's record.
template <int queries>
__device__ __forceinline__ void store_queries(const Work<queries>& work,
                                              const AttentionPlan& plan) {
  const int dims = work.a.heads.head_dim;
  for (int q = 0; q < work.block.queries(); ++q) {
    const std::int64_t row = work.block.row + q / work.block.heads;
    const std::int64_t head = work.block.head + q % work.block.heads;
    const float* const out = work.out + q * work.layout.query_stride;
    if (!plan.split) {
      float* const to = work.a.out.values + row * work.a.out.stride + head * dims;
      const float inverse = 1.0f / work.facts->total[q];
      for (int c = static_cast<int>(threadIdx.x); c < dims; c += kThreads) to[c] = out[c] * inverse;
      continue;
    }
    float* const record =
        work.a.scratch + ((row * work.a.heads.heads + head) * plan.spans + blockIdx.z) * (dims + 2);
    for (int c = static_cast<int>(threadIdx.x); c < dims; c += kThreads) record[c] = out[c];
    if (threadIdx.x != 0) continue;
    record[dims] = work.facts->largest[q];
    record[dims + 1] = work.facts->total[q];
  }
}

template <int queries>
__global__ void __launch_bounds__(kThreads, 1)
    attention_spans(const LEQ_GRID_CONSTANT AttentionArguments a,
                    const LEQ_GRID_CONSTANT AttentionPlan plan) {
  LEQ_BOUNDS(kThreads);
  LEQ_DYNAMIC_SHARED(float, memory);
  const QueryBlock block = query_block(a, plan);
  if (block.rows == 0) return;
  const Work<queries> work(a, block, plan.tile_positions, memory);
  const Positions all = block.seen();
  const int first = plan.split ? static_cast<int>(blockIdx.z) : all.first / kSpanTokens;
  const int last = plan.split ? first + 1 : (all.last - 1) / kSpanTokens + 1;
  const int last_seen = (all.last - 1) / kSpanTokens;
  if (first < all.first / kSpanTokens || first > last_seen) return;
  load_queries(work);
  for (int index = first; index < last; ++index) {
    const Positions span = {index * kSpanTokens, (index + 1) * kSpanTokens};
    const Positions seen = {max(span.first, all.first), min(span.last, all.last)};
    score_span(work, seen, plan.tile_positions);
    softmax_span(work, span);
    add_values(work, span, seen, plan.tile_positions);
  }
  store_queries(work, plan);
}

// Joins the spans of one (row, head).
__global__ void __launch_bounds__(kThreads)
    attention_join(const LEQ_GRID_CONSTANT AttentionArguments a,
                   const LEQ_GRID_CONSTANT AttentionPlan plan) {
  LEQ_BOUNDS(kThreads);
  const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int dims = a.heads.head_dim;
  const AttentionRun& run = a.batch.runs[a.batch.row_runs[row]];
  const int position = run.first_position + row - run.first_row;
  const int begin = a.heads.window > 0 ? max(0, position + 1 - a.heads.window) : 0;
  const float* const records =
      a.scratch + (std::int64_t{row} * a.heads.heads + head) * plan.spans * (dims + 2);
  for (int c = static_cast<int>(threadIdx.x); c < dims; c += kThreads) {
    float out = 0, largest = 0, total = 0;
    for (int span = begin / kSpanTokens; span <= position / kSpanTokens; ++span) {
      const float* const record = records + std::int64_t{span} * (dims + 2);
      const float m = record[dims], joint = total == 0.0f ? m : fmaxf(largest, m);
      const float keep = total == 0.0f ? 0.0f : device_exp(largest - joint);
      const float take = device_exp(m - joint);
      out = fmaf(record[c], take, out * keep);
      total = fmaf(record[dims + 1], take, total * keep);
      largest = joint;
    }
    a.out.values[row * a.out.stride + std::int64_t{head} * dims + c] = out * (1.0f / total);
  }
}

// Fewer (row, kv head) pairs than this are cut into spans: about two blocks a multiprocessor.
constexpr std::int64_t kSplitBelow = 264;
// A block should leave room for several on a multiprocessor.
constexpr int kModestBytes = 48 << 10;

template <int queries>
void launch(const AttentionArguments& a, AttentionPlan plan, rt::Stream& stream) {
  int bytes = AttentionMemory(a, queries, plan.tile_positions).bytes();
  while (bytes > kModestBytes && plan.tile_positions > 16) {
    plan.tile_positions /= 2;
    bytes = AttentionMemory(a, queries, plan.tile_positions).bytes();
  }
  // Every run may leave a block that is not full.
  const std::int64_t blocks =
      plan.block_rows == 1 ? a.batch.tokens : a.batch.tokens / plan.block_rows + a.batch.run_count;
  rt::run(stream,
          {"attention_spans",
           dim3(static_cast<unsigned>(blocks),
                static_cast<unsigned>(a.heads.kv_heads * plan.head_blocks),
                static_cast<unsigned>(plan.split ? plan.spans : 1)),
           dim3(kThreads), static_cast<std::size_t>(bytes)},
          attention_spans<queries>, a, plan);
  if (!plan.split) return;
  rt::run(stream,
          {"attention_join",
           dim3(static_cast<unsigned>(a.batch.tokens), static_cast<unsigned>(a.heads.heads)),
           dim3(kThreads), 0},
          attention_join, a, plan);
}

int spans_of(std::int64_t end) { return static_cast<int>((end + kSpanTokens - 1) / kSpanTokens); }

AttentionPlan plan_of(const AttentionArguments& a) {
  AttentionPlan plan;
  const int group = a.heads.heads / a.heads.kv_heads;
  plan.block_heads = std::min(group, kMostQueries);
  plan.head_blocks = (group + plan.block_heads - 1) / plan.block_heads;
  plan.spans = spans_of(a.batch.end);
  const bool few = a.batch.tokens * a.heads.kv_heads < kSplitBelow;
  plan.split = few && plan.spans > 1;
  if (!few && a.batch.longest_run > 1) plan.block_rows = kMostQueries / plan.block_heads;
  return plan;
}

}  // namespace

void launch_attention(const AttentionArguments& a, rt::Stream& stream) {
  if (a.batch.tokens <= 0) return;
  const AttentionPlan plan = plan_of(a);
  const int queries = plan.block_rows * plan.block_heads;
  if (queries == 1) return launch<1>(a, plan, stream);
  if (queries <= 2) return launch<2>(a, plan, stream);
  if (queries <= 4) return launch<4>(a, plan, stream);
  if (queries <= 8) return launch<8>(a, plan, stream);
  launch<kMostQueries>(a, plan, stream);
}

std::size_t attention_scratch_bytes(std::int64_t tokens, const AttentionHeads& heads,
                                    std::int64_t context) {
  const std::int64_t rows = std::min(tokens, (kSplitBelow - 1) / heads.kv_heads);
  return static_cast<std::size_t>(rows * heads.heads * spans_of(context) * (heads.head_dim + 2)) *
         sizeof(float);
}

}  // namespace leq::LEQ_GPU
