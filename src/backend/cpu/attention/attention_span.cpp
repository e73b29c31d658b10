#include "backend/cpu/attention/attention_span.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "backend/cpu/attention/kv_layout.h"
#include "base/float_math.h"
#include "tensor/quant_scheme.h"

namespace leq::cpu {
namespace {

// From so many queries on, a page of f16 or int8 numbers is widened once for all of them.
constexpr int kWideQueries = 13;

// Columns of a span or page, [first, last).
struct Columns {
  int first = 0;
  int last = 0;

  bool empty() const { return first >= last; }
  bool operator==(const Columns&) const = default;
};

// What row `row` of the block sees of a span. Both ends grow with the row.
Columns visible(const HeadBlock& head, std::int64_t row, std::int64_t span) {
  const std::int64_t position = head.block.first_position + row;
  const std::int64_t base = span * kSpanTokens;
  const std::int64_t oldest =
      head.shape.window > 0 ? std::max<std::int64_t>(0, position + 1 - head.shape.window) : 0;
  const auto within = [&](std::int64_t at) {
    return static_cast<int>(std::clamp<std::int64_t>(at - base, 0, kSpanTokens));
  };
  return {within(oldest), within(position + 1)};
}

// The part of a span's columns that lies in its page, as the page's columns.
Columns in_page(Columns columns, int page) {
  const int base = page * kPageTokens;
  return {std::clamp(columns.first - base, 0, kPageTokens),
          std::clamp(columns.last - base, 0, kPageTokens)};
}

// Queries [first, last) that share loads.
struct Tile {
  int first = 0;
  int last = 0;
};

// The queries of one kv head are cut evenly into tiles.
int tile_count(const HeadBlock& head) {
  return (head.head_queries() + kQueryTile - 1) / kQueryTile;
}

Tile tile_at(const HeadBlock& head, int kv_head, int tile) {
  const int queries = head.head_queries(), tiles = tile_count(head);
  const int first = kv_head * queries;
  return {first + tile * queries / tiles, first + (tile + 1) * queries / tiles};
}

// A span at work: its pages and where they lie.
struct SpanWork {
  const HeadBlock& head;
  const WorkerScratch& scratch;
  std::int64_t span;
  float* records;
  int first_page, last_page;  // in the span, that some row sees

  Columns of_query(int query) const { return {scratch.firsts[query], scratch.lasts[query]}; }
  // Columns that any, or that all queries of a tile see.
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
  // Of kv head `kv_head` of the block's heads.
  HeadPage keys(int page, int kv_head) const {
    return key_head(head.kv, page_index(page), head.shape.kv_heads, head.shape.head_dim,
                    head.kv_head + kv_head);
  }
  HeadPage values(int page, int kv_head) const {
    return value_head(head.kv, page_index(page), head.shape.kv_heads, head.shape.head_dim,
                      head.kv_head + kv_head);
  }
  float* scores(int query, int page) const {
    return scratch.scores + std::int64_t{query} * kSpanTokens + page * kPageTokens;
  }
  float* record(int query) const { return records + query * head.plan.record_floats; }
};

float& record_max(const HeadBlock& head, float* record) {
  return record[head.plan.record_floats - 16];
}
float& record_total(const HeadBlock& head, float* record) {
  return record[head.plan.record_floats - 15];
}

// Where a query's columns lie in the rows of a batch.
std::int64_t query_offset(const HeadBlock& head, int query, std::int64_t stride) {
  const int group = head.plan.group, of_head = query % head.head_queries();
  const std::int64_t kv_head = head.kv_head + query / head.head_queries();
  const std::int64_t row = head.block.first_row + of_head / group;
  return row * stride + (kv_head * group + of_head % group) * head.shape.head_dim;
}

// Widens a page's numbers where that pays; returns them and their type.
const void* widened(const SpanWork& work, KvType& type, const HeadPage& page, bool keys) {
  if (work.head.head_queries() < kWideQueries || type == KvType::f32) return page.numbers;
  const std::int64_t count = std::int64_t{kPageTokens} * work.head.shape.head_dim;
  if (type == KvType::f16) {
    work.head.kernels.widen_f16(reinterpret_cast<const std::uint16_t*>(page.numbers), count,
                                work.scratch.wide);
  } else {
    if (keys) return page.numbers;  // int8 keys are multiplied as they are
    work.head.kernels.widen_u8(reinterpret_cast<const std::uint8_t*>(page.numbers), count,
                               work.scratch.wide);
  }
  type = KvType::f32;
  return work.scratch.wide;
}

// What this thread will read soon.
struct NextPage {
  const std::byte* numbers = nullptr;
  std::size_t bytes = 0;

  // The part that tile t of `tiles` should bring nearer.
  Ahead part(int t, int tiles) const {
    const auto lines = static_cast<std::int64_t>(bytes / 64);
    const std::int64_t first = lines * t / tiles;
    return {numbers + first * 64, lines * (t + 1) / tiles - first};
  }
};

// Memory needs 4 KB or more under way; more than 8 KB ahead measured no faster.
int parts_ahead(std::size_t part_bytes) { return part_bytes <= 4096 ? 2 : 1; }

// A span reads its keys page by page, each kv head's part in turn, then its values; then the next
// span begins.
NextPage values_ahead(const SpanWork& work, int page, int kv_head) {
  const HeadBlock& head = work.head;
  const std::size_t bytes = value_head_bytes(head.kv.value_type, head.shape.head_dim);
  const int next = kv_head + parts_ahead(bytes);
  const int next_page = page + next / head.heads, next_head = next % head.heads;
  if (next_page < work.last_page) return {work.values(next_page, next_head).numbers, bytes};
  if (head.plan.split) return {};
  const int key_page = kSpanTokens / kPageTokens + next_page - work.last_page;
  const std::int64_t position = work.span * kSpanTokens + key_page * kPageTokens;
  if (position >= head.block.end_position()) return {};
  return {work.keys(key_page, next_head).numbers,
          key_head_bytes(head.kv.key_type, head.shape.head_dim)};
}

NextPage keys_ahead(const SpanWork& work, int page, int kv_head) {
  const HeadBlock& head = work.head;
  const std::size_t bytes = key_head_bytes(head.kv.key_type, head.shape.head_dim);
  const int next = kv_head + parts_ahead(bytes);
  const int next_page = page + next / head.heads, next_head = next % head.heads;
  if (next_page < work.last_page) return {work.keys(next_page, next_head).numbers, bytes};
  const int value_page = std::min(work.first_page + next_page - work.last_page, work.last_page - 1);
  return {work.values(value_page, next_head).numbers,
          value_head_bytes(head.kv.value_type, head.shape.head_dim)};
}

void prefetch(const std::uint16_t* numbers) {
  for (int line = 0; line < kPageTokens; line += 32) __builtin_prefetch(numbers + line, 0, 2);
}

void prefetch_scales(const HeadPage& page) {
  prefetch(page.scales);
  prefetch(page.minima);
}

// Scales and minima lie apart from the numbers: those of all the span's keys and values, at once.
void prefetch_scales(const SpanWork& work) {
  const KvLayer& kv = work.head.kv;
  for (int page = work.first_page; page < work.last_page; ++page) {
    for (int h = 0; h < work.head.heads; ++h) {
      if (kv.key_type == KvType::int8) prefetch_scales(work.keys(page, h));
    }
  }
  for (int page = work.first_page; page < work.last_page; ++page) {
    for (int h = 0; h < work.head.heads; ++h) {
      if (kv.value_type == KvType::int8) prefetch_scales(work.values(page, h));
    }
  }
}

void score_page(const SpanWork& work, int page, int kv_head) {
  const HeadBlock& head = work.head;
  const HeadPage keys = work.keys(page, kv_head);
  KvType type = head.kv.key_type;
  ScoreTile tile;
  tile.keys = widened(work, type, keys, true);
  tile.scales = keys.scales;
  tile.minima = keys.minima;
  tile.dims = head.shape.head_dim;
  const NextPage next = keys_ahead(work, page, kv_head);
  const std::int64_t code_stride = (head.shape.head_dim + 3) / 4 * 4;
  const int tiles = tile_count(head);
  for (int t = 0; t < tiles; ++t) {
    const Tile queries = tile_at(head, kv_head, t);
    const Columns columns = in_page(work.any(queries), page);
    if (columns.empty()) continue;
    tile.first_block = columns.first / kKeyBlock;
    tile.last_block = (columns.last + kKeyBlock - 1) / kKeyBlock;
    tile.queries = queries.last - queries.first;
    tile.ahead = next.part(t, tiles);
    for (int r = 0; r < tile.queries; ++r) {
      const int query = queries.first + r;
      tile.query[r] = work.scratch.queries[query];
      tile.codes[r] = work.scratch.codes + query * code_stride;
      tile.code_scale[r] = work.scratch.code_scales[query];
      tile.code_sum[r] = work.scratch.code_sums[query];
      tile.scores[r] = work.scores(query, page);
    }
    head.kernels.scores[static_cast<std::size_t>(type)](tile);
  }
}

// Scores become probabilities, and for int8 values weights and the sums of p * m.
void normalize_query(const SpanWork& work, int kv_head, int query) {
  const HeadBlock& head = work.head;
  float* record = work.record(query);
  std::memset(record, 0, static_cast<std::size_t>(head.plan.record_floats) * sizeof(float));
  const Columns columns = work.of_query(query);
  if (columns.empty()) return;
  const SpanSum sum = head.kernels.softmax(work.scores(query, 0), columns.first, columns.last);
  record_max(head, record) = sum.max;
  record_total(head, record) = sum.total;
  if (head.kv.value_type != KvType::int8) return;
  float* lanes = work.scratch.lanes + std::int64_t{query} * kLaneCount;
  std::memset(lanes, 0, kLaneCount * sizeof(float));
  for (int page = work.first_page; page < work.last_page; ++page) {
    const Columns part = in_page(columns, page);
    if (part.empty()) continue;
    const HeadPage values = work.values(page, kv_head);
    head.kernels.weigh(work.scores(query, page), part.first, part.last, values.scales,
                       values.minima, lanes);
  }
}

// Queries of a tile one by one where they do not see the same columns, together in between.
void value_tile(const SpanWork& work, int page, Tile queries, KvType type, ValueTile tile) {
  const auto run = [&](Tile some, Columns columns) {
    if (columns.empty()) return;
    tile.first = columns.first;
    tile.last = columns.last;
    tile.queries = some.last - some.first;
    for (int r = 0; r < tile.queries; ++r) {
      tile.weights[r] = work.scores(some.first + r, page);
      tile.out[r] = work.record(some.first + r);
    }
    work.head.kernels.values[static_cast<std::size_t>(type)](tile);
    tile.ahead = {};
  };
  const Columns all = in_page(work.all(queries), page);
  if (all == in_page(work.any(queries), page)) {
    run(queries, all);
    return;
  }
  for (int query = queries.first; query < queries.last; ++query) {
    Columns before = in_page(work.of_query(query), page);
    if (!all.empty()) before.last = std::min(before.last, all.first);
    run({query, query + 1}, before);
  }
  if (all.empty()) return;
  run(queries, all);
  for (int query = queries.first; query < queries.last; ++query) {
    Columns after = in_page(work.of_query(query), page);
    after.first = std::max(after.first, all.last);
    run({query, query + 1}, after);
  }
}

void value_page(const SpanWork& work, int page, int kv_head) {
  const HeadBlock& head = work.head;
  const HeadPage values = work.values(page, kv_head);
  KvType type = head.kv.value_type;
  ValueTile tile;
  tile.values = widened(work, type, values, false);
  tile.dims = head.shape.head_dim;
  const NextPage next = values_ahead(work, page, kv_head);
  const int tiles = tile_count(head);
  for (int t = 0; t < tiles; ++t) {
    tile.ahead = next.part(t, tiles);
    value_tile(work, page, tile_at(head, kv_head, t), type, tile);
  }
}

// o_c + z at the span's end
void add_minima(const SpanWork& work, int query) {
  const HeadBlock& head = work.head;
  if (work.of_query(query).empty()) return;
  const float z = head.kernels.lane_total(work.scratch.lanes + std::int64_t{query} * kLaneCount);
  head.kernels.shift(work.record(query), z, head.shape.head_dim, work.record(query));
}

}  // namespace

std::int64_t HeadBlock::first_span() const {
  if (shape.window == 0) return 0;
  const std::int64_t oldest = block.first_position + 1 - shape.window;
  return std::max<std::int64_t>(0, oldest) / kSpanTokens;
}

std::int64_t HeadBlock::last_span() const {
  return (block.end_position() + kSpanTokens - 1) / kSpanTokens;
}

bool prepare_queries(const HeadBlock& head, const WorkerScratch& scratch) {
  for (int query = 0; query < head.queries(); ++query) {
    scratch.queries[query] = head.qkv.values + query_offset(head, query, head.qkv.value_stride);
  }
  if (head.kv.key_type != KvType::int8) return true;
  const std::int64_t dims = head.shape.head_dim;
  const std::int64_t stride = (dims + 3) / 4 * 4;
  for (int query = 0; query < head.queries(); ++query) {
    const float* values = scratch.queries[query];
    auto* codes = reinterpret_cast<std::uint8_t*>(scratch.codes + query * stride);
    const float largest = head.rows.absmax(values, dims);
    if (!std::isfinite(largest)) return false;
    std::memset(codes, 0, static_cast<std::size_t>(stride));
    const bool zero = largest < kSmallestAbsmax;
    scratch.code_scales[query] = zero ? 1.0f : largest / 127.0f;
    if (!zero) head.rows.quantize(values, dims, 127.0f / largest, 0, codes);
    scratch.code_sums[query] = static_cast<float>(head.rows.code_sum(codes, dims, 0));
  }
  return true;
}

void run_span(const HeadBlock& head, std::int64_t span, const WorkerScratch& scratch,
              float* records) {
  SpanWork work{head, scratch, span, records, 0, 0};
  const int queries = head.head_queries(), group = head.plan.group;
  for (int h = 0; h < head.heads; ++h) {
    for (int row = 0; row < head.block.rows; ++row) {
      const Columns columns = visible(head, row, span);
      std::fill_n(scratch.firsts + h * queries + row * group, group, columns.first);
      std::fill_n(scratch.lasts + h * queries + row * group, group, columns.last);
    }
  }
  const Columns any = work.any({0, queries});
  work.first_page = any.first / kPageTokens;
  work.last_page = (any.last + kPageTokens - 1) / kPageTokens;
  prefetch_scales(work);
  for (int page = work.first_page; page < work.last_page; ++page) {
    for (int h = 0; h < head.heads; ++h) score_page(work, page, h);
  }
  for (int h = 0; h < head.heads; ++h) {
    for (int query = 0; query < queries; ++query) normalize_query(work, h, h * queries + query);
  }
  for (int page = work.first_page; page < work.last_page; ++page) {
    for (int h = 0; h < head.heads; ++h) value_page(work, page, h);
  }
  if (head.kv.value_type == KvType::int8) {
    for (int query = 0; query < head.queries(); ++query) add_minima(work, query);
  }
}

// M' = max(M, m), a = exp(M - M'), b = exp(m - M'), L = fma(l, b, L * a), O = fma(o, b, O * a)
void merge_records(const HeadBlock& head, const float* records, float* totals) {
  const std::int64_t size = head.plan.record_floats;
  for (int query = 0; query < head.queries(); ++query) {
    float* total = totals + query * size;
    const float* record = records + query * size;
    const float m = record[size - 16], l = record[size - 15];
    if (l == 0.0f) continue;
    float& largest = record_max(head, total);
    float& sum = record_total(head, total);
    if (sum == 0.0f) {
      std::copy_n(record, size, total);
      continue;
    }
    const float joint = m > largest ? m : largest;
    const float a = leq_exp(largest - joint), b = leq_exp(m - joint);
    sum = std::fma(l, b, sum * a);
    head.kernels.merge(record, a, b, head.shape.head_dim, total);
    largest = joint;
  }
}

void finish_records(const HeadBlock& head, const float* totals, float* values,
                    std::int64_t value_stride) {
  const std::int64_t dims = head.shape.head_dim, size = head.plan.record_floats;
  for (int query = 0; query < head.queries(); ++query) {
    const float* total = totals + query * size;
    head.kernels.scale(total, 1.0f / total[size - 15], dims,
                       values + query_offset(head, query, value_stride));
  }
}

void clear_records(const HeadBlock& head, float* records) {
  for (int query = 0; query < head.queries(); ++query) {
    float* record = records + query * head.plan.record_floats;
    record_total(head, record) = 0.0f;
  }
}

}  // namespace leq::cpu
