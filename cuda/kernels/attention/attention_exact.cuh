// Code shared by the exact attention kernels: the one over plain pages (attention_exact.cu) and the
// one over packed pages (attention_exact_packed.cu).
#pragma once

#include <algorithm>

#include "cuda/intrinsics/run.h"
#include "cuda/kernels/attention/attention_join.cuh"
#include "cuda/kernels/attention/attention_scores.cuh"
#include "cuda/kernels/attention/attention_values.cuh"

namespace leq::LEQ_GPU {

inline constexpr int kMaxQueries = 16;  // in a block

// Writes a finished query's outputs; if spans are split, writes o, M and L to the span's record.
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
      const float factor = output_factor<ExactJoin>(work.a.heads, head, work.facts->largest[q],
                                                    work.facts->total[q]);
      for (int c = static_cast<int>(threadIdx.x); c < dims; c += kAttentionThreads)
        to[c] = out[c] * factor;
      continue;
    }
    float* const record =
        work.a.scratch +
        ((std::int64_t{blockIdx.x} * work.a.heads.heads + head) * plan.spans + blockIdx.z) *
            (dims + 2);
    for (int c = static_cast<int>(threadIdx.x); c < dims; c += kAttentionThreads)
      record[c] = out[c];
    if (threadIdx.x != 0) continue;
    record[dims] = work.facts->largest[q];
    record[dims + 1] = work.facts->total[q];
  }
}

// Computes the outputs of a block of queries over its spans; score(work, seen) and
// add(work, span, seen) process the keys and the values of a span.
template <int queries, class Score, class Add>
__device__ __forceinline__ void attend(const AttentionArguments& a, const AttentionPlan& plan,
                                       Score score, Add add) {
  LEQ_DYNAMIC_SHARED(float, memory);
  ptx::wait_for_predecessor();
  const BlockWork block = block_work(a, plan);
  if (block.seen.empty()) return;
  const Work<queries> work(a, block.queries, plan.tile_positions, memory);
  load_queries(work);
  for (int index = block.first_span(); index <= block.last_span(); ++index) {
    const Positions span = span_positions(index), seen = block.visible_in(span);
    score(work, seen);
    softmax_span(work, span);
    add(work, span, seen);
  }
  ptx::let_successor_start();
  store_queries(work, plan);
}

// The limit of shared memory per block, so that several blocks fit on a multiprocessor.
inline constexpr int kModestBytes = 48 << 10;

// Launches `kernel`, whose blocks take up to `queries` queries.
template <class Kernel>
void launch_spans(const AttentionArguments& a, AttentionPlan plan, int queries, Kernel kernel,
                  const char* name, rt::Stream& stream) {
  int bytes = AttentionMemory(a, queries, plan.tile_positions).bytes();
  while (bytes > kModestBytes && plan.tile_positions > 16) {
    plan.tile_positions /= 2;
    bytes = AttentionMemory(a, queries, plan.tile_positions).bytes();
  }
  // The last block of each run may be only partly filled.
  const std::int64_t blocks =
      plan.block_rows == 1 ? a.batch.tokens : a.batch.tokens / plan.block_rows + a.batch.run_count;
  launch_in_parts(
      a, plan, a.batch.tokens, blocks, [&](const AttentionPlan& part, std::int64_t count) {
        rt::run(stream,
                {name,
                 rt::grid(count, a.heads.kv_heads * part.head_blocks, part.split ? part.spans : 1),
                 kAttentionThreads, static_cast<std::size_t>(bytes), rt::Start::early},
                kernel, a, part);
        if (!part.split) return;
        rt::run(
            stream,
            {"attention_join", rt::grid(count, a.heads.heads), kJoinThreads, 0, rt::Start::early},
            attention_join<ExactJoin>, a, part);
      });
}

}  // namespace leq::LEQ_GPU
