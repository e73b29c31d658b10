// The second kernel of attention that was cut into spans: joins the records (o, m, l) that blocks
// left in scratch. How two sums become one is the rule's, exact or of the tensor cores.
#pragma once

#include "cuda/kernels/attention/attention_launch.h"
#include "cuda/words/ptx.h"
#include "cuda/words/run.h"

namespace leq::LEQ_GPU {

inline constexpr int kJoinThreads = 128;

// One (row, head): its spans in ascending order. A Rule is made of M and L so far (at first kStart
// and 0) and the next m; it has `largest`, which is M' = max(M, m), and the factors `keep` of the
// sums so far and `take` of the next.
template <class Rule>
__global__ void __launch_bounds__(kJoinThreads)
    attention_join(const LEQ_GRID_CONSTANT AttentionArguments a,
                   const LEQ_GRID_CONSTANT AttentionPlan plan) {
  LEQ_BOUNDS(kJoinThreads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const bool single = plan.which == AttentionRuns::single;
  const int at = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int dims = a.heads.head_dim;
  const AttentionRun& run = a.batch.runs[single ? at : a.batch.row_runs[at]];
  if (!has_run(plan.which, run.rows)) return;
  const int row = single ? run.first_row : at;
  const int position = run.first_position + row - run.first_row;
  const int begin = a.heads.window > 0 ? max(0, position + 1 - a.heads.window) : 0;
  const float* const records =
      a.scratch + (std::int64_t{at} * a.heads.heads + head) * plan.spans * (dims + 2);
  for (int c = static_cast<int>(threadIdx.x); c < dims; c += kJoinThreads) {
    float out = 0, largest = Rule::kStart, total = 0;
    for (int span = begin / kSpanTokens; span <= position / kSpanTokens; ++span) {
      const float* const record = records + std::int64_t{span} * (dims + 2);
      const Rule rule(largest, total, record[dims]);
      out = fmaf(record[c], rule.take, out * rule.keep);
      total = fmaf(record[dims + 1], rule.take, total * rule.keep);
      largest = rule.largest;
    }
    a.out.values[row * a.out.stride + std::int64_t{head} * dims + c] = out * (1.0f / total);
  }
}

template <class Rule>
void launch_attention_join(const AttentionArguments& a, const AttentionPlan& plan,
                           rt::Stream& stream) {
  rt::run(stream,
          {"attention_join",
           dim3(static_cast<unsigned>(plan.which == AttentionRuns::single ? a.batch.run_count
                                                                          : a.batch.tokens),
                static_cast<unsigned>(a.heads.heads)),
           dim3(kJoinThreads), 0, rt::Start::early},
          attention_join<Rule>, a, plan);
}

}  // namespace leq::LEQ_GPU
