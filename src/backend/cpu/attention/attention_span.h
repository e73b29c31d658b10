// One span of 512 positions, for the queries of a few neighbouring kv heads in a block of rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backend/backend.h"
#include "backend/cpu/attention/attention_plan.h"
#include "backend/cpu/attention/kv_pages.h"
#include "backend/cpu/kernels/kernels.h"
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
  // The position after the last one that row `row` of the block sees.
  std::int64_t seen_end(std::int64_t row) const {
    const std::int64_t own = block.first_position + row;
    if (!shape.both_ways) return own + 1;
    return shape.window > 0 ? std::min(block.run_end, own + shape.window) : block.run_end;
  }
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

// Columns [first, last) of a span or a page.
struct Columns {
  int first = 0;
  int last = 0;

  bool empty() const { return first >= last; }
  bool operator==(const Columns&) const = default;
};

// The columns of a span that are in one of its pages, numbered within that page.
inline Columns in_page(Columns columns, int page) {
  const int base = page * kPageTokens;
  return {std::clamp(columns.first - base, 0, kPageTokens),
          std::clamp(columns.last - base, 0, kPageTokens)};
}

// Removes and returns one of `parts` equal parts of the lines that are left to prefetch.
inline Ahead take_part(Ahead& left, int parts) {
  if (left.count == 0) return {};
  const Ahead part = {left.lines, left.count / parts};
  left = {left.lines + part.count * 64, left.count - part.count};
  return part;
}

// Queries [first, last), which are processed together so that they share loads.
struct Tile {
  int first = 0;
  int last = 0;
};

// The queries of one kv head are divided evenly into tiles.
inline int tile_count(const HeadBlock& head) {
  return (head.head_queries() + kQueryTile - 1) / kQueryTile;
}

inline Tile tile_at(const HeadBlock& head, int kv_head, int tile) {
  const int queries = head.head_queries(), tiles = tile_count(head);
  const int first = kv_head * queries;
  if (tiles == 1) return {first, first + queries};  // the usual case avoids divisions
  return {first + tile * queries / tiles, first + (tile + 1) * queries / tiles};
}

// The state of one span: its pages and the addresses of their data.
struct SpanWork {
  const HeadBlock& head;
  const WorkerScratch& scratch;
  std::int64_t span;
  float* records;
  const NextSpan& next;
  int first_page = 0, last_page = 0;  // range of the span's pages that are visible to some row

  Columns of_query(int query) const { return {scratch.firsts[query], scratch.lasts[query]}; }
  // Columns that at least one query of a tile sees (any), and columns that all of them see (all).
  Columns any(Tile tile) const {
    return {scratch.firsts[tile.first], scratch.lasts[tile.last - 1]};
  }
  Columns all(Tile tile) const {
    return {scratch.firsts[tile.last - 1], scratch.lasts[tile.first]};
  }
  std::int32_t page_index(int page) const {
    const std::int64_t first = span * (kSpanTokens / kPageTokens);
    return head.block.pages[static_cast<std::size_t>(first + page)];
  }
  // The data of a kv head; `kv_head` is an index among the block's kv heads.
  HeadPage keys(int page, int kv_head) const {
    return key_head(head.kv, page_index(page), head.shape.kv_heads, head.shape.head_dim,
                    head.kv_head + kv_head);
  }
  HeadPage values(int page, int kv_head) const {
    return value_head(head.kv, page_index(page), head.shape.kv_heads, head.shape.head_dim,
                      head.kv_head + kv_head);
  }
  HeadPage copy(KvPart part, int page, int kv_head) const {
    return copied_head(head.kv, part, page_index(page), head.shape.kv_heads, head.shape.head_dim,
                       head.kv_head + kv_head);
  }
  // The position of a query's row, and the position of a page's first column.
  std::int64_t position_of(int query) const {
    return head.block.first_position + query % head.head_queries() / head.readers.count;
  }
  std::int64_t page_position(int page) const {
    return span * kSpanTokens + std::int64_t{page} * kPageTokens;
  }
  float* scores(int query, int page) const {
    return scratch.scores + std::int64_t{query} * kSpanTokens + page * kPageTokens;
  }
  float* record(int query) const { return records + query * head.plan.record_floats; }
};

// Calls run(queries, columns) for the columns of a page, within `limit`, that a tile sees: once for
// the columns that all queries see, and once per query for its columns before and after these.
template <class Run>
void each_view(const SpanWork& work, int page, Tile queries, Columns limit, Run run_some) {
  const auto clipped = [&](Columns columns) {
    const Columns part = in_page(columns, page);
    return Columns{std::max(part.first, limit.first), std::min(part.last, limit.last)};
  };
  const auto run = [&](Tile some, Columns columns) {
    if (!columns.empty()) run_some(some, columns);
  };
  const Columns all = clipped(work.all(queries));
  if (all == clipped(work.any(queries))) {
    run(queries, all);
    return;
  }
  for (int query = queries.first; query < queries.last; ++query) {
    Columns before = clipped(work.of_query(query));
    if (!all.empty()) before.last = std::min(before.last, all.first);
    run({query, query + 1}, before);
  }
  if (all.empty()) return;
  run(queries, all);
  for (int query = queries.first; query < queries.last; ++query) {
    Columns after = clipped(work.of_query(query));
    after.first = std::max(after.first, all.last);
    run({query, query + 1}, after);
  }
}

// Pages of packed codes (attention_packed.cpp). A query reads codes of blocks that are closed for
// it and f16 copies of the others; positions alone decide this (KvResidual). Called before the
// span's pages: computes the initial values of scores and clears sums of minima.
void begin_packed_span(const SpanWork& work);
void score_packed_page(const SpanWork& work, int page, int kv_head, Ahead ahead);
void value_packed_page(const SpanWork& work, int page, int kv_head, Ahead ahead);
// Called at the end of a span: adds z, the sum of p * m for the group of channel c, to each o_c.
void add_packed_minima(const SpanWork& work);

// Multiplies a head's q, k, v or output by the symmetric Hadamard matrix of rotated schemes.
void rotate_head(const PackedKernels& kernels, float* head, int head_dim);

}  // namespace leq::cpu
