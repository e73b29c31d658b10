// The join of attention that was split into spans: blocks write records (o, m, l) to scratch, and
// the last block of those that share queries, or a separate kernel, joins the records. The template
// argument Rule defines how two partial sums are joined: exactly, or as on the tensor cores.
#pragma once

#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/attention/attention_block.cuh"
#include "cuda/kernels/attention/attention_launch.h"
#include "cuda/kernels/rows/output_codes.cuh"

namespace leq::LEQ_GPU {

inline constexpr int kJoinThreads = 128;

// Joins column c of one (row, head) over its spans in ascending order. A Rule is constructed from
// the current M and L (initially kStart and 0) and the m of the next span. Its `largest` is
// M' = max(M, m); `keep` is the factor of the sums so far, `take` that of the next span.
template <class Rule>
__device__ __forceinline__ float join_column(const float* records, const AttentionHeads& heads,
                                             std::int64_t head, Positions seen, int c) {
  const int dims = heads.head_dim;
  float out = 0, largest = Rule::kStart, total = 0;
#pragma unroll 4
  for (int span = seen.first / kSpanTokens; span <= (seen.last - 1) / kSpanTokens; ++span) {
    const float* const record = records + std::int64_t{span} * (dims + 2);
    const float o = read_fresh(record + c), more = read_fresh(record + dims + 1);
    const Rule rule(largest, total, read_fresh(record + dims));
    out = fmaf(o, rule.take, out * rule.keep);
    total = fmaf(more, rule.take, total * rule.keep);
    largest = rule.largest;
  }
  return out * output_factor<Rule>(heads, head, largest, total);
}

// Called when a block has finished its last span. The last of the blocks that share the queries
// joins their spans and quantizes the outputs if they are to be int8 codes.
template <class Rule>
__device__ __forceinline__ void complete_queries(const AttentionArguments& a,
                                                 const AttentionPlan& plan,
                                                 const QueryBlock& block) {
  const int dims = a.heads.head_dim;
  if (plan.split) {
    const Positions all = block.seen();
    const int spans = (all.last - 1) / kSpanTokens - all.first / kSpanTokens + 1;
    if (!is_last_block(a.codes.tickets + block.ticket, static_cast<unsigned>(spans))) return;
    for (int i = static_cast<int>(threadIdx.x); i < block.queries() * dims;
         i += static_cast<int>(blockDim.x)) {
      const int query = i / dims, c = i % dims;
      const std::int64_t row = block.row + query / block.heads;
      const std::int64_t head = block.head + query % block.heads;
      const float* const records =
          a.scratch +
          (std::int64_t{first_record(plan, block) + query / block.heads} * a.heads.heads + head) *
              plan.spans * (dims + 2);
      a.out.values[row * a.out.stride + head * dims + c] =
          join_column<Rule>(records, a.heads, head, block.visible_to(query), c);
    }
  }
  if (!a.codes.exist()) return;
  __syncthreads();
  const int groups = block.heads * dims / 128;
  for (int i = static_cast<int>(threadIdx.x) / 32; i < block.rows * groups;
       i += static_cast<int>(blockDim.x) / 32) {
    quantize_outputs(a.codes, a.out, block.row + i / groups,
                     std::int64_t{block.head} * dims + i % groups * 128,
                     std::int64_t{a.heads.heads} * dims);
  }
}

// The join as a separate kernel, which exact attention launches.
template <class Rule>
__global__ void __launch_bounds__(kJoinThreads)
    attention_join(const LEQ_GRID_CONSTANT AttentionArguments a,
                   const LEQ_GRID_CONSTANT AttentionPlan plan) {
  LEQ_BOUNDS(kJoinThreads);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const int row = plan.first_block + static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const int dims = a.heads.head_dim;
  const AttentionRun& run = a.batch.runs[a.batch.row_runs[row]];
  const int position = run.first_position + row - run.first_row;
  const Positions seen = visible_at(position, a.heads.window, run_end_of(a.heads, run));
  const float* const records =
      a.scratch + (std::int64_t{blockIdx.x} * a.heads.heads + head) * plan.spans * (dims + 2);
  for (int c = static_cast<int>(threadIdx.x); c < dims; c += kJoinThreads) {
    a.out.values[row * a.out.stride + std::int64_t{head} * dims + c] =
        join_column<Rule>(records, a.heads, head, seen, c);
  }
}

}  // namespace leq::LEQ_GPU
