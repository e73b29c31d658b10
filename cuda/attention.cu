// Which attention runs, and the join of spans that tensor cores left in scratch.
#include <algorithm>

#include "cuda/attention_launch.h"
#include "cuda/attention_tile_scores.cuh"
#include "cuda/run.h"

namespace leq::LEQ_GPU {

namespace {

constexpr int kJoinThreads = 128;
constexpr int kTensorDims = 256;  // the widest head

// One (row, head): its spans in ascending order, as Joined (attention_tile_values.cuh) does.
__global__ void __launch_bounds__(kJoinThreads)
    attention_join_spans(const LEQ_GRID_CONSTANT AttentionArguments a,
                         const LEQ_GRID_CONSTANT AttentionPlan plan) {
  LEQ_BOUNDS(kJoinThreads);
  const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int dims = a.heads.head_dim;
  const AttentionRun& run = a.batch.runs[a.batch.row_runs[row]];
  const int position = run.first_position + row - run.first_row;
  const int begin = a.heads.window > 0 ? max(0, position + 1 - a.heads.window) : 0;
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const float* const records =
      a.scratch + (std::int64_t{row} * a.heads.heads + head) * plan.spans * (dims + 2);
  for (int c = static_cast<int>(threadIdx.x); c < dims; c += kJoinThreads) {
    float out = 0, largest = kNothingSeen, total = 0;
    for (int span = begin / kSpanTokens; span <= position / kSpanTokens; ++span) {
      const float* const record = records + std::int64_t{span} * (dims + 2);
      const float most = record[dims];
      const Join join(largest, most);
      const float take = join.take(most);
      out = fmaf(record[c], take, out * join.keep);
      total = fmaf(record[dims + 1], take, total * join.keep);
      largest = join.largest;
    }
    a.out.values[row * a.out.stride + std::int64_t{head} * dims + c] = out * (1.0f / total);
  }
}

bool on_tensor_cores(const AttentionArguments& a) {
  return !a.exact && a.keys.type == a.values.type && a.keys.type != KvNumbers::f32 &&
         a.heads.head_dim % 16 == 0 && a.heads.head_dim <= kTensorDims;
}

}  // namespace

void launch_attention(const AttentionArguments& a, rt::Stream& stream) {
  if (a.batch.tokens <= 0) return;
  if (!on_tensor_cores(a)) return launch_exact_attention(a, stream);
  AttentionPlan plan;
  plan.spans = spans_of(a.batch.end);
  plan.split = plan.spans > 1 && a.batch.tokens * a.heads.heads <= kTensorSplit;
  if (a.keys.type == KvNumbers::int8) {
    launch_tensor_attention<KvNumbers::int8, KvNumbers::int8>(a, plan, stream);
  } else {
    launch_tensor_attention<KvNumbers::f16, KvNumbers::f16>(a, plan, stream);
  }
  if (!plan.split) return;
  rt::run(stream,
          {"attention_join_spans",
           dim3(static_cast<unsigned>(a.batch.tokens), static_cast<unsigned>(a.heads.heads)),
           dim3(kJoinThreads), 0, rt::Start::early},
          attention_join_spans, a, plan);
}

std::size_t attention_scratch_bytes(std::int64_t tokens, const AttentionHeads& heads,
                                    std::int64_t context) {
  const std::int64_t rows =
      std::min(tokens, std::max(kExactSplit / heads.kv_heads, kTensorSplit / heads.heads));
  return static_cast<std::size_t>(rows * heads.heads * spans_of(context) * (heads.head_dim + 2)) *
         sizeof(float);
}

}  // namespace leq::LEQ_GPU
