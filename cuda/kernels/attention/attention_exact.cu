// Exact attention over pages of f32, f16 or int8 for any head size, group and window, in the order
// of docs/numerics.md: each span of 512 positions has its own softmax, and spans are joined in
// ascending order. With few rows each span has its own block and a second kernel joins the spans;
// with many rows a block iterates over all spans for up to 16 queries that share a kv head.
#include <algorithm>

#include "cuda/kernels/attention/attention_exact.cuh"

namespace leq::LEQ_GPU {

namespace {

template <int queries>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    attention_spans(const LEQ_GRID_CONSTANT AttentionArguments a,
                    const LEQ_GRID_CONSTANT AttentionPlan plan) {
  LEQ_BOUNDS(kAttentionThreads);
  attend<queries>(
      a, plan,
      [&](const auto& work, Positions seen) { score_span(work, seen, plan.tile_positions); },
      [&](const auto& work, Positions span, Positions seen) {
        add_values(work, span, seen, plan.tile_positions);
      });
}

template <int queries>
void launch(const AttentionArguments& a, const AttentionPlan& plan, rt::Stream& stream) {
  launch_spans(a, plan, queries, attention_spans<queries>, "attention_spans", stream);
}

AttentionPlan plan_of(const AttentionArguments& a) {
  AttentionPlan plan;
  const int group = a.heads.group;
  plan.block_heads = std::min(group, kMaxQueries);
  plan.head_blocks = (group + plan.block_heads - 1) / plan.block_heads;
  plan.spans = spans_of(a.batch.end);
  const bool few = a.batch.tokens * a.heads.kv_heads <= kExactSplit;
  plan.split = few && plan.spans > 1;
  if (!few && a.batch.longest_run > 1) plan.block_rows = kMaxQueries / plan.block_heads;
  return plan;
}

}  // namespace

void launch_exact_attention(const AttentionArguments& a, rt::Stream& stream) {
  const AttentionPlan plan = plan_of(a);
  if (a.keys.codes.packed() || a.values.codes.packed()) {
    return launch_exact_packed(a, plan, stream);
  }
  const int queries = plan.block_rows * plan.block_heads;
  if (queries == 1) return launch<1>(a, plan, stream);
  if (queries <= 2) return launch<2>(a, plan, stream);
  if (queries <= 4) return launch<4>(a, plan, stream);
  if (queries <= 8) return launch<8>(a, plan, stream);
  launch<kMaxQueries>(a, plan, stream);
}

}  // namespace leq::LEQ_GPU
