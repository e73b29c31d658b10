// The work of one block of the attention kernel: queries that share a kv head, the positions
// visible to them, and tiles of keys or values streamed through shared memory. A new page type
// needs a branch here and where tiles are read (attention_scores.cuh, attention_values.cuh).
#pragma once

#include "cuda/kernels/attention/attention_launch.h"
#include "cuda/kernels/attention/kv_page.cuh"

namespace leq::LEQ_GPU {

inline constexpr int kAttentionThreads = 128;

struct Positions {
  int first = 0, last = 0;

  __device__ __forceinline__ bool empty() const { return first >= last; }
  __device__ __forceinline__ bool holds(int j) const { return first <= j && j < last; }
};

// The positions that the query at position `at` sees. `run_end` is the end of its run if it also
// sees later positions, otherwise 0.
__device__ __forceinline__ Positions visible_at(int at, int window, int run_end) {
  const int last = run_end == 0 ? at + 1 : window > 0 ? min(run_end, at + window) : run_end;
  return {window > 0 ? max(0, at + 1 - window) : 0, last};
}
__device__ __forceinline__ int run_end_of(const AttentionHeads& heads, const AttentionRun& run) {
  return heads.both_ways ? run.first_position + run.rows : 0;
}

// Rows of one run times heads of one kv head; query q has row q / heads and head q % heads.
struct QueryBlock {
  int row = 0, rows = 0;  // first row in the batch, and number of rows
  int position = 0;       // of the first row, in its sequence
  int kv_head = 0, head = 0, heads = 0;
  int window = 0, run_end = 0;  // as of visible_at
  unsigned ticket = 0;          // shared by the blocks that have these queries, one block per span
  const std::int32_t* pages = nullptr;
  int settled = 0;  // positions below it are not written in this step, if the batch is settled

  __device__ __forceinline__ int queries() const { return rows * heads; }
  __device__ __forceinline__ Positions visible_to(int query) const {
    return visible_at(position + query / heads, window, run_end);
  }
  __device__ __forceinline__ Positions seen() const {
    return {visible_to(0).first, visible_to(queries() - 1).last};
  }
};

// Finds the queries of row block `at`: its run and its rows in that run; rows is 0 if the block is
// empty. The heads are those of block y of the grid.
__device__ __forceinline__ QueryBlock query_block(const AttentionArguments& a,
                                                  const AttentionPlan& plan, int at) {
  QueryBlock block;
  int run = 0;
  if (plan.which == AttentionRuns::single) {
    run = at;
    at = 0;
    if (a.batch.runs[run].rows != 1) return block;
  } else if (plan.block_rows == 1) {
    run = a.batch.row_runs[at];
    at -= a.batch.runs[run].first_row;
    if (!has_run(plan.which, a.batch.runs[run].rows)) return block;
  } else {
    for (; run < a.batch.run_count; ++run) {
      const int rows = a.batch.runs[run].rows;
      if (!has_run(plan.which, rows)) continue;
      const int blocks = (rows + plan.block_rows - 1) / plan.block_rows;
      if (at < blocks) break;
      at -= blocks;
    }
    if (run == a.batch.run_count) return block;
    at *= plan.block_rows;
  }
  const AttentionRun& found = a.batch.runs[run];
  block.row = found.first_row + at;
  block.rows = min(plan.block_rows, found.rows - at);
  block.position = found.first_position + at;
  block.pages = a.batch.pages + found.pages_at;
  // Other runs of the batch may be the preceding positions of the same sequence.
  if (a.batch.settled) block.settled = found.first_position + 1 - a.batch.run_count;
  const int group = a.heads.group;
  const int first = static_cast<int>(blockIdx.y) % plan.head_blocks * plan.block_heads;
  block.kv_head = static_cast<int>(blockIdx.y) / plan.head_blocks;
  // Limits the heads to this rank's, because the first and the last kv head may be shared by ranks.
  const int begin = block.kv_head * group - a.heads.first_head + first;
  const int end = min(begin + min(plan.block_heads, group - first), a.heads.heads);
  block.head = max(begin, 0);
  block.heads = end - block.head;
  if (block.heads <= 0) block.rows = 0;
  block.window = a.heads.window;
  block.run_end = run_end_of(a.heads, found);
  block.ticket = blockIdx.x * gridDim.y + blockIdx.y;
  return block;
}

// Returns the offset in scratch, in rows, of the records of the block's first row.
__device__ __forceinline__ int first_record(const AttentionPlan& plan, const QueryBlock& block) {
  return plan.placed_by_block ? static_cast<int>(blockIdx.x) * plan.block_rows : block.row;
}

__device__ __forceinline__ Positions span_positions(int span) {
  return {span * kSpanTokens, (span + 1) * kSpanTokens};
}

// The work of a block of the grid: its queries, and the positions visible to them. If work is
// split, the positions are limited to the block's span. An empty range means that there is no work.
struct BlockWork {
  QueryBlock queries;
  Positions seen;

  __device__ __forceinline__ int first_span() const { return seen.first / kSpanTokens; }
  __device__ __forceinline__ int last_span() const { return (seen.last - 1) / kSpanTokens; }
  __device__ __forceinline__ Positions visible_in(Positions span) const {
    return {max(seen.first, span.first), min(seen.last, span.last)};
  }
};
__device__ __forceinline__ BlockWork block_work(const AttentionArguments& a,
                                                const AttentionPlan& plan) {
  // Rows with the most visible positions start first, because they take longest.
  const unsigned at = plan.split ? static_cast<unsigned>(plan.first_block) + blockIdx.x
                                 : gridDim.x - 1 - blockIdx.x;
  BlockWork work = {query_block(a, plan, static_cast<int>(at)), {}};
  if (work.queries.rows == 0) return work;
  work.seen = work.queries.seen();
  if (plan.split) {
    const int span = static_cast<int>(blockIdx.z) * kSpanTokens;
    work.seen = {max(work.seen.first, span), min(work.seen.last, span + kSpanTokens)};
  }
  return work;
}

// Tiles of keys or values of neighbouring positions in shared memory. The stride of a row is 16
// bytes longer than the row, so that the same columns of eight rows are in different banks.
struct KvTiles {
  const KvPages& pages;
  const AttentionHeads& heads;
  const QueryBlock& block;
  unsigned char* memory;  // two tiles: one is used while the other is loaded
  int positions;          // positions in a tile, a divisor of 64
  int row_bytes;

  __device__ __forceinline__ KvTiles(const AttentionArguments& a, const KvPages& which,
                                     const QueryBlock& queries, unsigned char* storage, int count)
      : pages(which),
        heads(a.heads),
        block(queries),
        memory(storage),
        positions(count),
        row_bytes(
            static_cast<int>(kv_row_bytes(a.heads.head_dim, stored_number_bytes(which.type)))) {}

  __device__ __forceinline__ int stride() const { return row_bytes + 16; }
  __device__ __forceinline__ KvHeadPage page_of(int position) const {
    return kv_head_page(pages, block.pages[position / kKvPageTokens], heads, block.kv_head);
  }
  __device__ __forceinline__ const unsigned char* tile(int index) const {
    return memory + index % 2 * positions * stride();
  }

  // Starts copying tile `index`, which begins at position index * positions and is within one page.
  __device__ __forceinline__ void load(int index) const {
    const int first = index * positions, chunks = row_bytes / 16;
    const std::byte* from =
        page_of(first).numbers + std::int64_t{first % kKvPageTokens} * row_bytes;
    unsigned char* to = memory + index % 2 * positions * stride();
    for (int i = static_cast<int>(threadIdx.x); i < positions * chunks; i += kAttentionThreads) {
      ptx::cp_async16(to + i / chunks * stride() + i % chunks * 16, from + std::int64_t{i} * 16,
                      true);
    }
  }

  // Calls use(tile index, tile) for each tile that contains any of the positions. The next tile is
  // loaded during the call.
  template <class Use>
  __device__ __forceinline__ void for_each_tile(Positions of, Use use) const {
    const int first = of.first / positions, last = (of.last + positions - 1) / positions;
    load(first);
    ptx::cp_async_commit();
    for (int index = first; index < last; ++index) {
      if (index + 1 < last) load(index + 1);
      ptx::cp_async_commit();
      ptx::cp_async_wait<1>();
      __syncthreads();
      use(index, tile(index));
      __syncthreads();
    }
  }
};

// The factor of o from a query's M and L: 1 / L; with a sink s of the head a / fma(L, a, exp(s -
// M')), where M' = max(M, s) and a = exp(M - M'). Rule::score converts s to the unit of M.
template <class Rule>
__device__ __forceinline__ float output_factor(const AttentionHeads& heads, std::int64_t head,
                                               float largest, float total) {
  if (heads.sink_logits == nullptr) return 1.0f / total;
  const Rule rule(largest, total, Rule::score(heads.sink_logits[head]));
  return rule.keep / fmaf(total, rule.keep, rule.take);
}

}  // namespace leq::LEQ_GPU
