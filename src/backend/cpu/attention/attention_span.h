// One span of 512 positions, for the queries of a few neighbouring kv heads in a block of rows.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/cpu/attention/attention_kernels.h"
#include "backend/cpu/attention/attention_plan.h"
#include "backend/cpu/attention/packed_kernels.h"
#include "backend/cpu/attention/row_blocks.h"
#include "backend/cpu/rows/row_kernels.h"
#include "base/fetch.h"

namespace leq::cpu {

// Heads with small parts of a page are read together, page by page, because reading pieces of 4 KB
// far apart is slow. Queries are numbered by kv head, then by row, then by head of the group.
struct HeadBlock {
  const RowKernels& rows;
  const AttentionKernels& kernels;
  const PackedKernels& packed;
  const AttentionPlan& plan;
  const AttentionShape& shape;
  const KvLayer& kv;
  const Rows& qkv;
  Fetch fetch;
  RowBlock block;
  int kv_head = 0;          // first kv head
  int heads = 1;            // number of kv heads
  QueryHeads readers = {};  // query heads of the first kv head; the other kv heads have as many

  int head_queries() const { return static_cast<int>(block.rows) * readers.count; }
  int queries() const { return heads * head_queries(); }
  // Spans [first, last) contain all positions that are visible to some row.
  std::int64_t first_span() const;
  std::int64_t last_span() const;
};

// Called before the first span: sets the addresses of the queries and, for int8 keys, quantizes the
// queries. Returns false if a query is not finite.
bool prepare_queries(const HeadBlock& head, const WorkerScratch& scratch);

// The span that this thread will probably run next; its first keys are prefetched.
struct NextSpan {
  const HeadBlock* head = nullptr;  // null: there is no next span
  std::int64_t span = 0;
};

// records[q] = (o, m, l) of query q over the span; l is 0 if q sees no position of the span.
void run_span(const HeadBlock& head, std::int64_t span, const NextSpan& next,
              const WorkerScratch& scratch, float* records);

// Merges records[q], the result of query q over the next span, into totals[q].
void merge_records(const HeadBlock& head, const float* records, float* totals);

// Writes o * (1 / l) to the block's rows, in the columns of these kv heads.
void finish_records(const HeadBlock& head, const float* totals, float* values,
                    std::int64_t value_stride);

// Sets records to the empty state, in which l is 0.
void clear_records(const HeadBlock& head, float* records);

}  // namespace leq::cpu
