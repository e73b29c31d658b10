// Scores of a span and their softmax, by a block of the attention kernel.
#pragma once

#include "cuda/intrinsics/float_math.cuh"
#include "cuda/kernels/attention/attention_work.cuh"

namespace leq::LEQ_GPU {

// Loads 16 bytes of a row of floats, beginning at column c.
template <KvType type>
struct Sixteen {
  static constexpr int kCount = type == KvType::f32 ? 4 : 8;
  float numbers[kCount];

  __device__ __forceinline__ Sixteen(const unsigned char* row, int c) {
    const uint4 words = *reinterpret_cast<const uint4*>(row + c * (16 / kCount));
    const std::uint32_t w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if constexpr (type == KvType::f32) {
        numbers[i] = __uint_as_float(w[i]);
      } else {
        numbers[i] = ptx::f16_to_f32(static_cast<std::uint16_t>(w[i / 2] >> i % 2 * 16));
      }
    }
  }
};

// Returns the number of column c, converted from its stored type.
template <KvType type>
__device__ __forceinline__ float one_number(const unsigned char* row, int c) {
  if constexpr (type == KvType::f32) return reinterpret_cast<const float*>(row)[c];
  return ptx::f16_to_f32(reinterpret_cast<const std::uint16_t*>(row)[c]);
}

// The queries that a thread scores with one key of a tile: every `step`-th query from `first` on.
template <int queries>
struct ScoreShare {
  static constexpr int kMost =
      (queries + 1) / 2;  // a tile has at most half as many keys as threads
  int first, step, slot;

  __device__ __forceinline__ explicit ScoreShare(int positions)
      : first(static_cast<int>(threadIdx.x) / positions),
        step(kAttentionThreads / positions),
        slot(static_cast<int>(threadIdx.x) % positions) {}
  __device__ __forceinline__ int query(int i) const { return first + i * step; }
};

// Each key has one fma chain over columns in ascending order.
template <int queries, KvType type>
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

// For int8 keys: score = s_q * fma(s, float(sum u q), m * float(sum q)).
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
  keys.for_each_tile(seen, [&](int index, const unsigned char* tile) {
    const unsigned char* const row = tile + share.slot * keys.stride();
    switch (work.a.keys.type) {
      case KvType::f32:
        return score_floats<queries, KvType::f32>(work, index, positions, row, share);
      case KvType::f16:
        return score_floats<queries, KvType::f16>(work, index, positions, row, share);
      case KvType::int8:
        return score_codes<queries>(work, keys, index, row, share);
      default:  // packed codes: attention_exact_packed.cu
        return;
    }
  });
}

// Returns the sum of the values of lanes 0..15, added in the order of docs/numerics.md.
__device__ __forceinline__ float sixteen_total(float value) {
  for (int step = 8; step > 0; step /= 2) value += __shfl_xor_sync(kEveryLane, value, step);
  return __shfl_sync(kEveryLane, value, 0);
}

// Run by one warp: converts a query's scores to weights of the values; returns the sum of p.
template <int queries>
__device__ __forceinline__ float weigh_query(const Work<queries>& work, int q, Positions seen,
                                             float largest) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float* const p = work.scores + q * kSpanTokens;
  for (int j = seen.first + lane; j < seen.last; j += 32) {
    p[j % kSpanTokens] = device_exp(p[j % kSpanTokens] - largest);
  }
  __syncwarp();
  const bool coded = stored_coded(work.a.values.type);
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

// Joins a span with maximum m to the earlier spans, which have M and L (L = 0 if there are none):
//   M' = max(M, m)   a = exp(M - M')   b = exp(m - M')   L = fma(l, b, L a)
struct ExactJoin {
  static constexpr float kStart = 0;
  float largest, keep, take;  // M', a, b

  __device__ __forceinline__ ExactJoin(float before, float total, float more)
      : largest(total == 0.0f ? more : fmaxf(before, more)),
        keep(total == 0.0f ? 0.0f : device_exp(before - largest)),
        take(device_exp(more - largest)) {}
  static __device__ __forceinline__ float score(float sink) { return sink; }
};

// One warp per query computes the span's m and l, and the factors that join it to earlier spans.
template <int queries>
__device__ __forceinline__ void softmax_span(const Work<queries>& work, Positions span) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int q = static_cast<int>(threadIdx.x / 32); q < work.block.queries();
       q += kAttentionThreads / 32) {
    const Positions seen = work.visible_in(q, span);
    if (seen.empty()) {
      if (lane == 0) work.facts->take[q] = -1.0f;  // the span is not joined
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
    const ExactJoin join(facts.largest[q], facts.total[q], m);
    facts.keep[q] = join.keep;
    facts.take[q] = join.take;
    facts.total[q] = fmaf(l, join.take, facts.total[q] * join.keep);
    facts.largest[q] = join.largest;
  }
  __syncthreads();
}

}  // namespace leq::LEQ_GPU
