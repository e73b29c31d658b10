// Attention that was cut into spans: the records (o, m, l) that blocks left in scratch are joined,
// by the last block of those that share queries or by a kernel of its own. How two sums become one
// is the rule's, exact or of the tensor cores. First factors of all spans are made, by all warps,
// then each thread adds up columns, with many loads at once.
#pragma once

#include "cuda/kernels/attention/attention_block.cuh"
#include "cuda/kernels/attention/attention_launch.h"
#include "cuda/kernels/rows/output_codes.cuh"
#include "cuda/words/ptx.h"
#include "cuda/words/run.h"

namespace leq::LEQ_GPU {

inline constexpr int kJoinThreads = 128;

// How a span joins those before it: out = fma(o, take, out * keep), and so their sums of weights.
struct SpanFactors {
  float keep, take;
  float total;    // l of the span
  float largest;  // M after it
};

// Shared memory for factors.
struct FactorRoom {
  SpanFactors* factors;
  int count;
};

// What the spans of one (row, head) left, in ascending order: (o [dims], m, l) each.
struct SpanRecords {
  const float* first;
  int dims, spans;

  // `all` begins with span 0.
  template <class Rule>
  static __device__ __forceinline__ SpanRecords of(const float* all, int dims, Positions seen) {
    const int span = seen.first / Rule::kSpan;
    return {all + std::int64_t{span} * (dims + 2), dims, (seen.last - 1) / Rule::kSpan - span + 1};
  }
  __device__ __forceinline__ const float* at(int span) const {
    return first + std::int64_t{span} * (dims + 2);
  }
};

// By a warp: factors of `count` spans from `from` on; `largest` is M before them. A Rule is made of
// M and L so far and the next m; it has `largest`, which is M' = max(M, m), and the factors `keep`
// of the sums so far and `take` of the next. Of L it uses whether it is 0, as before the first span
// alone, so that no lane waits for another's sum.
template <class Rule>
__device__ __forceinline__ void make_factors(const SpanRecords& records, int from, int count,
                                             float largest, SpanFactors* factors) {
  constexpr int kSpans = 4;  // of a lane
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int base = 0; base < count; base += 32 * kSpans) {
    const int first = base + lane * kSpans;
    float m[kSpans], l[kSpans];
#pragma unroll
    for (int i = 0; i < kSpans; ++i) {
      const bool there = first + i < count;
      const float* const ends = records.at(from + min(first + i, count - 1)) + records.dims;
      const float found = read_fresh(ends);
      m[i] = there ? found : -INFINITY;
      l[i] = read_fresh(ends + 1);
    }
    float most = m[0];
    for (int i = 1; i < kSpans; ++i) most = fmaxf(most, m[i]);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float other = __shfl_up_sync(kEveryLane, most, static_cast<unsigned>(step));
      if (lane >= step) most = fmaxf(most, other);
    }
    const float lanes_before = __shfl_up_sync(kEveryLane, most, 1);
    float before = lane == 0 ? largest : fmaxf(largest, lanes_before);
#pragma unroll
    for (int i = 0; i < kSpans; ++i) {
      if (first + i >= count) break;
      const Rule rule(before, from + first + i == 0 ? 0.0f : 1.0f, m[i]);
      factors[first + i] = {rule.keep, rule.take, l[i], rule.largest};
      before = rule.largest;
    }
    largest = fmaxf(largest, __shfl_sync(kEveryLane, most, 31));
  }
}

// Sums of one column over spans in ascending order.
struct ColumnSums {
  float out = 0, total = 0;

  // Spans from `from` on, with their factors: so many loads are on their way at once.
  __device__ __forceinline__ void add(const SpanRecords& records, int column, int from, int count,
                                      const SpanFactors* factors) {
    constexpr int kLoads = 16;
    for (int base = 0; base < count; base += kLoads) {
      float o[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        o[i] = read_fresh(records.at(from + min(base + i, count - 1)) + column);
      }
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        if (base + i >= count) break;
        const SpanFactors span = factors[base + i];
        out = fmaf(o[i], span.take, out * span.keep);
        total = fmaf(span.total, span.take, total * span.keep);
      }
    }
  }
};

// Joins the spans of each of some (row, head) pairs, which have at most `most`: store(query,
// column, number). All threads of a block call it, after what wrote the records. Factors are made
// for as many pairs at once as there is room for; where there is not enough for one pair, for some
// of its spans after others.
template <class Rule, class RecordsOf, class Store>
__device__ __forceinline__ void join_spans(int queries, int dims, int most, const FactorRoom& room,
                                           RecordsOf records_of, Store store) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int spans = min(most, room.count);
  const int at_once = queries == 1 ? 1 : max(1, room.count / most);
  for (int first = 0; first < queries; first += at_once) {
    const int count = min(at_once, queries - first);
    for (int base = 0; base < count * dims; base += threads) {
      const int at = base + thread;
      const bool there = at < count * dims;
      const int query = queries == 1 || !there ? 0 : at / dims, column = at - query * dims;
      const SpanRecords records = records_of(first + query);
      ColumnSums sums;
      for (int from = 0; from < most; from += spans) {
        if (base == 0 || spans < most) {
          __syncthreads();
          for (int q = thread / 32; q < count; q += threads / 32) {
            const SpanRecords of = records_of(first + q);
            SpanFactors* const to = room.factors + q * spans;
            const float largest = from == 0 ? -INFINITY : to[spans - 1].largest;
            __syncwarp();
            make_factors<Rule>(of, from, min(spans, of.spans - from), largest, to);
          }
          __syncthreads();
        }
        if (!there) continue;
        sums.add(records, column, from, min(spans, records.spans - from),
                 room.factors + query * spans);
      }
      if (there) store(first + query, column, sums.out * (1.0f / sums.total));
    }
  }
}

// A block's queries after its last span: the last block of their spans joins them, and where the
// outputs are to be codes makes these.
template <class Rule>
__device__ __forceinline__ void complete_queries(const AttentionArguments& a,
                                                 const AttentionPlan& plan,
                                                 const QueryBlock& block, const FactorRoom& room) {
  const int dims = a.heads.head_dim;
  if (plan.split) {
    const Positions all = block.seen();
    const int spans = (all.last - 1) / Rule::kSpan - all.first / Rule::kSpan + 1;
    if (!is_last_block(a.codes.tickets + block.ticket, static_cast<unsigned>(spans))) return;
    const auto records_of = [&](int query) {
      const std::int64_t record =
          std::int64_t{first_record(plan, block) + query / block.heads} * a.heads.heads +
          block.head + query % block.heads;
      return SpanRecords::of<Rule>(a.scratch + record * plan.spans * (dims + 2), dims,
                                   block.seen_by(query));
    };
    join_spans<Rule>(block.queries(), dims, spans, room, records_of,
                     [&](int query, int column, float number) {
                       const std::int64_t row = block.row + query / block.heads;
                       const std::int64_t head = block.head + query % block.heads;
                       a.out.values[row * a.out.stride + head * dims + column] = number;
                     });
  }
  if (a.codes.quantize.out.codes == nullptr) return;
  __syncthreads();
  const int groups = block.heads * dims / 128;
  for (int i = static_cast<int>(threadIdx.x) / 32; i < block.rows * groups;
       i += static_cast<int>(blockDim.x) / 32) {
    quantize_outputs(a.codes, a.out, block.row + i / groups,
                     std::int64_t{block.head} * dims + i % groups * 128,
                     std::int64_t{a.heads.heads} * dims);
  }
}

// By a kernel of its own: exact attention.
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
  const Positions seen = {a.heads.window > 0 ? max(0, position + 1 - a.heads.window) : 0,
                          position + 1};
  const float* const all =
      a.scratch + (std::int64_t{blockIdx.x} * a.heads.heads + head) * plan.spans * (dims + 2);
  const SpanRecords records = SpanRecords::of<Rule>(all, dims, seen);
  LEQ_SHARED(SpanFactors[kJoinThreads], factors);
  join_spans<Rule>(
      1, dims, records.spans, {factors, kJoinThreads}, [&](int) { return records; },
      [&](int, int column, float number) {
        a.out.values[row * a.out.stride + std::int64_t{head} * dims + column] = number;
      });
}

template <class Rule>
void launch_attention_join(const AttentionArguments& a, const AttentionPlan& plan, unsigned rows,
                           rt::Stream& stream) {
  rt::run(stream,
          {"attention_join", dim3(rows, static_cast<unsigned>(a.heads.heads)), dim3(kJoinThreads),
           0, rt::Start::early},
          attention_join<Rule>, a, plan);
}

}  // namespace leq::LEQ_GPU
