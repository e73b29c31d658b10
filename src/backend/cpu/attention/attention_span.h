// One span of 512 positions for the queries of a few neighbouring kv heads in a block of rows.
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

// Heads whose parts of a page are small are read together, page by page, because memory is slow at
// pieces of 4 KB far apart. Queries are numbered by kv head, then row, then head of the group.
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
  int kv_head = 0;          // the first
  int heads = 1;            // kv heads
  QueryHeads readers = {};  // of the first; the others have as many

  int head_queries() const { return static_cast<int>(block.rows) * readers.count; }
  int queries() const { return heads * head_queries(); }
  // Spans [first, last) hold every position that some row sees.
  std::int64_t first_span() const;
  std::int64_t last_span() const;
};

// Before the first span: finds the queries; int8 keys want int8 queries. Returns false where one is
// not finite.
bool prepare_queries(const HeadBlock& head, const WorkerScratch& scratch);

// What this thread will probably do after a span: its first keys are fetched meanwhile.
struct NextSpan {
  const HeadBlock* head = nullptr;  // null: nothing
  std::int64_t span = 0;
};

// records[q] = (o, m, l) of query q over the span; l = 0 where it sees nothing there.
void run_span(const HeadBlock& head, std::int64_t span, const NextSpan& next,
              const WorkerScratch& scratch, float* records);

// totals[q] = totals[q] merged with records[q], the next span of query q.
void merge_records(const HeadBlock& head, const float* records, float* totals);

// Rows of the block, these kv heads' columns: o * (1 / l).
void finish_records(const HeadBlock& head, const float* totals, float* values,
                    std::int64_t value_stride);

// Sets records to "nothing yet".
void clear_records(const HeadBlock& head, float* records);

}  // namespace leq::cpu
