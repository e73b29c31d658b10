// Exact attention if keys or values are packed codes. Closed blocks of positions are read as codes
// from the pages, other positions from their f16 copies. Bit-identical to the CPU
// (docs/numerics.md). This kernel is simple instead of fast: each thread loads single codes.
#include "cuda/kernels/attention/attention_exact.cuh"
#include "cuda/kernels/attention/kv_packed.cuh"

namespace leq::LEQ_GPU {

namespace {

// One side of the cache (keys or values), as read by the queries of a block.
struct PackedSide {
  const AttentionArguments& a;
  const QueryBlock& block;
  const KvPages& pages;
  const KvPages& copies;

  __device__ __forceinline__ PackedHead codes_at(int j) const {
    return packed_head(pages, block.pages[j / kKvPageTokens], a.heads, block.kv_head);
  }
  // Returns the address of channel 0 of position j's f16 copy.
  __device__ __forceinline__ const std::uint16_t* copy_at(int j) const {
    const int run = a.batch.row_runs[block.row];
    const int copy = a.batch.pages[a.batch.runs[run].copies_at + j / kKvPageTokens];
    const KvHeadPage page = kv_head_page(copies, copy, a.heads, block.kv_head);
    return reinterpret_cast<const std::uint16_t*>(page.numbers +
                                                  j % kKvPageTokens * page.row_bytes);
  }
  __device__ __forceinline__ CodedPositions coded(int query) const {
    return {a.copied.residual, block.position + query / block.heads};
  }
};

// The score of a key stored as codes: f = fma(t, u, f) over channels, t = q s, from f = sum of q m.
__device__ __forceinline__ float score_block(const PackedSide& side, const float* q, int j) {
  const KvCodes& codes = side.pages.codes;
  const int dims = side.a.heads.head_dim, slot = j % kKvPageTokens;
  const PackedHead head = side.codes_at(j);
  const int ends = slot / codes.block * dims;
  float score = 0;
#pragma unroll 1
  for (int c = 0; c < dims; ++c) {
    score = fmaf(q[c], ptx::f16_to_f32(head.minima[ends + kv_key_end(dims, c)]), score);
  }
#pragma unroll 1
  for (int c = 0; c < dims; ++c) {
    const float t = q[c] * ptx::f16_to_f32(head.scales[ends + kv_key_end(dims, c)]);
    score = fmaf(t, head.code(KvPart::keys, dims, slot, c), score);
  }
  return score;
}

__device__ __forceinline__ float score_copy(const PackedSide& side, const float* q, int j) {
  const std::uint16_t* const key = side.copy_at(j);
  float score = 0;
#pragma unroll 1
  for (int c = 0; c < side.a.heads.head_dim; ++c) {
    score = fmaf(q[c], ptx::f16_to_f32(key[c]), score);
  }
  return score;
}

// Computes the scores of a span; each thread computes the scores of whole keys.
template <int queries>
__device__ void score_packed_span(const Work<queries>& work, Positions seen) {
  const PackedSide side = {work.a, work.block, work.a.keys, work.a.copied.keys};
#pragma unroll 1
  for (int q = 0; q < work.block.queries(); ++q) {
    const float* const query = work.query + q * work.layout.query_stride;
    const CodedPositions coded = side.coded(q);
    const Positions own = work.visible_in(q, seen);
#pragma unroll 1
    for (int j = own.first + static_cast<int>(threadIdx.x); j < own.last; j += kAttentionThreads) {
      const float score = coded.holds(j) ? score_block(side, query, j) : score_copy(side, query, j);
      work.scores[q * kSpanTokens + j % kSpanTokens] = score;
    }
  }
  __syncthreads();
}

// Computes one column of one query over a span: o = fma(w, u, o) from +0, where w = p s, plus the
// sum of p m in 16 lanes. For positions read in f16, w = p and u is the value itself.
template <int queries>
__device__ __forceinline__ float packed_column(const Work<queries>& work, const PackedSide& side,
                                               int q, Positions own, int c) {
  const KvCodes& codes = side.pages.codes;
  const CodedPositions coded = side.coded(q);
  const float* const p = work.scores + q * kSpanTokens;
  const int ends = c / codes.group * kKvPageTokens;
  float out = 0, lanes[16] = {};
#pragma unroll 1
  for (int first = own.first / 16 * 16; first < own.last; first += 16) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int j = first + i, slot = j % kKvPageTokens;
      if (!own.holds(j)) continue;
      const float weight = p[j % kSpanTokens];
      if (!coded.holds(j)) {
        out = fmaf(weight, ptx::f16_to_f32(side.copy_at(j)[c]), out);
        continue;
      }
      const PackedHead head = side.codes_at(j);
      const int end = ends + kv_value_end(slot);
      lanes[i] = fmaf(weight, ptx::f16_to_f32(head.minima[end]), lanes[i]);
      out = fmaf(weight * ptx::f16_to_f32(head.scales[end]),
                 head.code(KvPart::values, work.a.heads.head_dim, slot, c), out);
    }
  }
#pragma unroll
  for (int width = 8; width > 0; width /= 2) {
#pragma unroll
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return out + lanes[0];
}

template <int queries>
__device__ void add_packed_values(const Work<queries>& work, Positions span) {
  const PackedSide side = {work.a, work.block, work.a.values, work.a.copied.values};
#pragma unroll 1
  for (int q = 0; q < work.block.queries(); ++q) {
    const Positions own = work.visible_in(q, span);
    if (own.empty()) continue;
    const float take = work.facts->take[q], keep = work.facts->keep[q];
#pragma unroll 1
    for (int c = static_cast<int>(threadIdx.x); c < work.a.heads.head_dim; c += kAttentionThreads) {
      float& out = work.out[q * work.layout.query_stride + c];
      out = fmaf(packed_column(work, side, q, own, c), take, out * keep);
    }
  }
  __syncthreads();
}

template <int queries>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    attention_packed_spans(const LEQ_GRID_CONSTANT AttentionArguments a,
                           const LEQ_GRID_CONSTANT AttentionPlan plan) {
  LEQ_BOUNDS(kAttentionThreads);
  attend<queries>(
      a, plan,
      [&](const auto& work, Positions seen) {
        a.keys.codes.packed() ? score_packed_span(work, seen)
                              : score_span(work, seen, plan.tile_positions);
      },
      [&](const auto& work, Positions span, Positions seen) {
        a.values.codes.packed() ? add_packed_values(work, span)
                                : add_values(work, span, seen, plan.tile_positions);
      });
}

}  // namespace

void launch_exact_packed(const AttentionArguments& a, const AttentionPlan& plan,
                         rt::Stream& stream) {
  const int queries = plan.block_rows * plan.block_heads;
  if (queries <= 4) {
    return launch_spans(a, plan, 4, attention_packed_spans<4>, "attention_packed_spans", stream);
  }
  launch_spans(a, plan, kMaxQueries, attention_packed_spans<kMaxQueries>, "attention_packed_spans",
               stream);
}

}  // namespace leq::LEQ_GPU
