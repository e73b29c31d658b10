// Exact attention over pages of f32, f16 or int8 for any head size, group and window, in the order
// of docs/numerics.md: spans of 512 positions, each with a softmax of its own, joined in ascending
// order. Few rows: a block for each span, and a second kernel that joins them; many: a block takes
// up to 16 queries that share a kv head through all spans.
#include <algorithm>

#include "cuda/kernels/attention/attention_join.cuh"
#include "cuda/kernels/attention/attention_scores.cuh"
#include "cuda/kernels/attention/attention_values.cuh"
#include "cuda/words/run.h"

namespace leq::LEQ_GPU {

namespace {

constexpr int kThreads = kAttentionThreads;
constexpr int kMostQueries = 16;

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
  ptx::wait_for_predecessor();
  const QueryBlock block = query_block(a, plan, static_cast<int>(blockIdx.x));
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
  ptx::let_successor_start();
  store_queries(work, plan);
}

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
           dim3(kThreads), static_cast<std::size_t>(bytes), rt::Start::early},
          attention_spans<queries>, a, plan);
  if (plan.split) launch_attention_join<ExactJoin>(a, plan, stream);
}

AttentionPlan plan_of(const AttentionArguments& a) {
  AttentionPlan plan;
  const int group = a.heads.heads / a.heads.kv_heads;
  plan.block_heads = std::min(group, kMostQueries);
  plan.head_blocks = (group + plan.block_heads - 1) / plan.block_heads;
  plan.spans = spans_of(a.batch.end);
  const bool few = a.batch.tokens * a.heads.kv_heads <= kExactSplit;
  plan.split = few && plan.spans > 1;
  if (!few && a.batch.longest_run > 1) plan.block_rows = kMostQueries / plan.block_heads;
  return plan;
}

}  // namespace

void launch_exact_attention(const AttentionArguments& a, rt::Stream& stream) {
  const AttentionPlan plan = plan_of(a);
  const int queries = plan.block_rows * plan.block_heads;
  if (queries == 1) return launch<1>(a, plan, stream);
  if (queries <= 2) return launch<2>(a, plan, stream);
  if (queries <= 4) return launch<4>(a, plan, stream);
  if (queries <= 8) return launch<8>(a, plan, stream);
  launch<kMostQueries>(a, plan, stream);
}

}  // namespace leq::LEQ_GPU
