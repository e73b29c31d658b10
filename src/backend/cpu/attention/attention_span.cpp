#include "backend/cpu/attention/attention_span.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/float_math.h"
#include "base/prefetch.h"
#include "tensor/quant_scheme.h"

namespace leq::cpu {
namespace {

// With at least this many queries, a page of f16 numbers or codes is widened to f32 once for all.
constexpr int kWideQueries = 13;

// The columns of a span that row `row` of the block sees. Both ends increase with the row.
Columns visible(const HeadBlock& head, std::int64_t row, std::int64_t span) {
  const std::int64_t position = head.block.first_position + row;
  const std::int64_t base = span * kSpanTokens;
  const std::int64_t oldest =
      head.shape.window > 0 ? std::max<std::int64_t>(0, position + 1 - head.shape.window) : 0;
  const auto within = [&](std::int64_t at) {
    return static_cast<int>(std::clamp<std::int64_t>(at - base, 0, kSpanTokens));
  };
  return {within(oldest), within(head.seen_end(row))};
}

float& record_max(const HeadBlock& head, float* record) {
  return record[head.plan.record_floats - 16];
}
float& record_total(const HeadBlock& head, float* record) {
  return record[head.plan.record_floats - 15];
}

// Offset of a query's columns in the rows of a batch.
std::int64_t query_offset(const HeadBlock& head, int query, std::int64_t stride) {
  const int group = head.readers.count, of_head = query % head.head_queries();
  const std::int64_t first = head.readers.first + query / head.head_queries() * group;
  const std::int64_t row = head.block.first_row + of_head / group;
  return row * stride + (first + of_head % group) * head.shape.head_dim;
}

const KvKernels& kernels_of(const HeadBlock& head, KvType type) {
  return head.kernels.kv[static_cast<std::size_t>(type)];
}

// Widens a page's numbers if that saves time. Returns the numbers to use and sets their type.
const void* widened(const SpanWork& work, KvType& type, const HeadPage& page, bool keys) {
  const auto widen = kernels_of(work.head, type).widen;
  if (work.head.head_queries() < kWideQueries || widen == nullptr) return page.numbers;
  if (keys && kv_coded(type)) return page.numbers;  // codes are multiplied directly
  widen(page.numbers, std::int64_t{kPageTokens} * work.head.shape.head_dim, work.scratch.wide);
  type = kExactKv;
  return work.scratch.wide;
}

KvType type_of(const HeadBlock& head, KvPart side) {
  return side == KvPart::keys ? head.kv.key_type : head.kv.value_type;
}

// Whether only the hardware prefetcher is used: for float numbers of one query in long pieces. With
// codes or several queries it falls behind, because their products take as long as the reads; with
// short pieces it restarts too often.
bool hardware_prefetched(const HeadBlock& head, KvPart side) {
  constexpr std::size_t kLongPiece = 96 * 1024;
  const KvType type = type_of(head, side);
  if (head.fetch != Fetch::never || kv_coded(type) || head.head_queries() > 1) return false;
  const int dims = head.shape.head_dim;
  if (side == KvPart::values && dims > head.kernels.columns_in_order) return false;
  return head.heads == head.shape.kv_heads ||
         static_cast<std::size_t>(head.heads) * head_bytes(side, type, dims) >= kLongPiece;
}

// Whether values are also prefetched into the L1 cache. On Zen 5 this reduces the speed of one
// query with f16 values to 0.8 of it, but it makes several queries faster.
bool fetched_near(const HeadBlock& head) {
  if (head.fetch == Fetch::once) return head.head_queries() > 1;
  return !hardware_prefetched(head, KvPart::values);
}

Ahead lines_of(const HeadBlock& head, KvPart side, const HeadPage& part) {
  if (hardware_prefetched(head, side)) return {};
  const std::size_t bytes = head_bytes(side, type_of(head, side), head.shape.head_dim);
  return {part.numbers, static_cast<std::int64_t>(bytes / 64)};
}

// Memory needs at least 4 KB in flight; prefetching more than 8 KB ahead was measured as no faster.
int parts_ahead(std::size_t part_bytes) { return part_bytes <= 4096 ? 2 : 1; }

// The part of a page that belongs to one kv head.
struct PagePart {
  int page = 0;
  int kv_head = 0;
};

// The part that is read `count` parts later. (A division took longer than this loop.)
PagePart part_after(const HeadBlock& head, PagePart part, int count) {
  part.kv_head += count;
  for (; part.kv_head >= head.heads; part.kv_head -= head.heads) ++part.page;
  return part;
}

// The next span's keys, `pages` pages after the span's first page.
Ahead next_keys(const SpanWork& work, int pages, int kv_head) {
  if (work.next.head == nullptr) return {};
  const HeadBlock& head = *work.next.head;
  const SpanWork next{head, work.scratch, work.next.span, nullptr, work.next};
  const int page = visible(head, 0, next.span).first / kPageTokens + pages;
  if (next.page_position(page) >= head.block.end_position()) return {};
  return lines_of(head, KvPart::keys, next.keys(page, std::min(kv_head, head.heads - 1)));
}

// A span reads its keys page by page, in each page the parts of all kv heads. Then it reads its
// values in the same order, and the next span begins.
Ahead values_ahead(const SpanWork& work, int page, int kv_head) {
  const HeadBlock& head = work.head;
  const std::size_t bytes = value_head_bytes(head.kv.value_type, head.shape.head_dim);
  const PagePart next = part_after(head, {page, kv_head}, parts_ahead(bytes));
  if (next.page < work.last_page) {
    return lines_of(head, KvPart::values, work.values(next.page, next.kv_head));
  }
  return next_keys(work, next.page - work.last_page, next.kv_head);
}

Ahead keys_ahead(const SpanWork& work, int page, int kv_head) {
  const HeadBlock& head = work.head;
  const std::size_t bytes = key_head_bytes(head.kv.key_type, head.shape.head_dim);
  const PagePart next = part_after(head, {page, kv_head}, parts_ahead(bytes));
  if (next.page < work.last_page) {
    return lines_of(head, KvPart::keys, work.keys(next.page, next.kv_head));
  }
  const int value_page = std::min(work.first_page + next.page - work.last_page, work.last_page - 1);
  return lines_of(head, KvPart::values, work.values(value_page, next.kv_head));
}

// Scales and minima are stored apart from the numbers, contiguously for neighbouring heads.
// Prefetches the scales and minima of all the span's keys and values.
void prefetch_scales(const SpanWork& work) {
  const HeadBlock& head = work.head;
  for (const KvPart side : {KvPart::keys, KvPart::values}) {
    const KvType type = type_of(head, side);
    if (!kv_coded(type)) continue;
    const std::size_t bytes = static_cast<std::size_t>(head.heads) *
                              end_count(side, type, head.shape.head_dim) * sizeof(std::uint16_t);
    for (int page = work.first_page; page < work.last_page; ++page) {
      const HeadPage part = side == KvPart::keys ? work.keys(page, 0) : work.values(page, 0);
      prefetch<2>(part.scales, bytes);
      prefetch<2>(part.minima, bytes);
    }
  }
}

// The caller provides the tile, because clearing one per page took a tenth of the products' time.
void score_page(const SpanWork& work, int page, int kv_head, ScoreTile& tile) {
  const HeadBlock& head = work.head;
  if (kv_packed(head.kv.key_type)) {
    return score_packed_page(work, page, kv_head, keys_ahead(work, page, kv_head));
  }
  const HeadPage keys = work.keys(page, kv_head);
  KvType type = head.kv.key_type;
  tile.keys = widened(work, type, keys, true);
  tile.in_order = hardware_prefetched(head, KvPart::keys);
  tile.scales = keys.scales;
  tile.minima = keys.minima;
  tile.dims = head.shape.head_dim;
  Ahead next = keys_ahead(work, page, kv_head);
  const std::int64_t code_stride = (head.shape.head_dim + 3) / 4 * 4;
  const int tiles = tile_count(head);
  for (int t = 0; t < tiles; ++t) {
    const Tile queries = tile_at(head, kv_head, t);
    const Columns columns = in_page(work.any(queries), page);
    if (columns.empty()) continue;
    tile.first_block = columns.first / kKeyBlock;
    tile.last_block = (columns.last + kKeyBlock - 1) / kKeyBlock;
    tile.queries = queries.last - queries.first;
    tile.ahead = take_part(next, tiles - t);
    for (int r = 0; r < tile.queries; ++r) {
      const int query = queries.first + r;
      tile.query[r] = work.scratch.queries[query];
      tile.codes[r] = work.scratch.codes + query * code_stride;
      tile.code_scale[r] = work.scratch.code_scales[query];
      tile.code_sum[r] = work.scratch.code_sums[query];
      tile.scores[r] = work.scores(query, page);
    }
    kernels_of(head, type).scores(tile);
  }
}

// Converts a query's scores to probabilities.
void normalize_query(const SpanWork& work, int query) {
  const HeadBlock& head = work.head;
  float* record = work.record(query);
  std::memset(record, 0, static_cast<std::size_t>(head.plan.record_floats) * sizeof(float));
  const Columns columns = work.of_query(query);
  if (columns.empty()) return;
  const SpanSum sum = head.kernels.softmax(work.scores(query, 0), columns.first, columns.last);
  record_max(head, record) = sum.max;
  record_total(head, record) = sum.total;
}

// For int8 values: converts probabilities to weights p * s and accumulates the sums of p * m.
void weigh_page(const SpanWork& work, int page, int kv_head, WeighTile& tile) {
  const HeadBlock& head = work.head;
  const HeadPage values = work.values(page, kv_head);
  tile.scales = values.scales;
  tile.minima = values.minima;
  for (int t = 0; t < tile_count(head); ++t) {
    each_view(work, page, tile_at(head, kv_head, t), {0, kPageTokens},
              [&](Tile some, Columns columns) {
                tile.queries = some.last - some.first;
                tile.first = columns.first;
                tile.last = columns.last;
                for (int r = 0; r < tile.queries; ++r) {
                  const int query = some.first + r;
                  tile.p[r] = tile.weights[r] = work.scores(query, page);
                  tile.lanes[r] = work.scratch.lanes + std::int64_t{query} * kLaneCount;
                }
                head.kernels.weigh(tile);
              });
  }
}

void value_tile(const SpanWork& work, int page, Tile queries, KvType type, ValueTile& tile) {
  each_view(work, page, queries, {0, kPageTokens}, [&](Tile some, Columns columns) {
    tile.first = columns.first;
    tile.last = columns.last;
    tile.queries = some.last - some.first;
    for (int r = 0; r < tile.queries; ++r) {
      tile.weights[r] = work.scores(some.first + r, page);
      tile.out[r] = work.record(some.first + r);
    }
    kernels_of(work.head, type).values(tile);
    tile.ahead = {};
  });
}

void value_page(const SpanWork& work, int page, int kv_head, ValueTile& tile) {
  const HeadBlock& head = work.head;
  if (kv_packed(head.kv.value_type)) {
    return value_packed_page(work, page, kv_head, values_ahead(work, page, kv_head));
  }
  const HeadPage values = work.values(page, kv_head);
  KvType type = head.kv.value_type;
  tile.values = widened(work, type, values, false);
  tile.near = fetched_near(head);
  tile.dims = head.shape.head_dim;
  Ahead next = values_ahead(work, page, kv_head);
  const int tiles = tile_count(head);
  for (int t = 0; t < tiles; ++t) {
    tile.ahead = take_part(next, tiles - t);
    value_tile(work, page, tile_at(head, kv_head, t), type, tile);
  }
}

// At the end of a span: adds z, the sum of p * m, to each o_c.
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
  return (seen_end(block.rows - 1) + kSpanTokens - 1) / kSpanTokens;
}

bool prepare_queries(const HeadBlock& head, const WorkerScratch& scratch) {
  for (int query = 0; query < head.queries(); ++query) {
    scratch.queries[query] = head.qkv.values + query_offset(head, query, head.qkv.value_stride);
  }
  if (!kv_coded(head.kv.key_type) || kv_packed(head.kv.key_type)) return true;
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
    const std::int32_t sum =
        zero ? 0 : head.rows.quantize(values, dims, 127.0f / largest, 0, codes);
    scratch.code_sums[query] = static_cast<float>(sum);
  }
  return true;
}

void run_span(const HeadBlock& head, std::int64_t span, const NextSpan& next,
              const WorkerScratch& scratch, float* records) {
  SpanWork work{head, scratch, span, records, next};
  const int queries = head.head_queries(), group = head.readers.count;
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
  begin_packed_span(work);
  ScoreTile scores;
  for (int page = work.first_page; page < work.last_page; ++page) {
    for (int h = 0; h < head.heads; ++h) score_page(work, page, h, scores);
  }
  for (int query = 0; query < head.queries(); ++query) normalize_query(work, query);
  // int8 values are weighed page by page, so that memory reads overlap with the weighing.
  const bool weighed = kv_coded(head.kv.value_type) && !kv_packed(head.kv.value_type);
  if (weighed) std::fill_n(scratch.lanes, std::int64_t{head.queries()} * kLaneCount, 0.0f);
  WeighTile weights;
  ValueTile values;
  for (int page = work.first_page; page < work.last_page; ++page) {
    for (int h = 0; h < head.heads; ++h) {
      if (weighed) weigh_page(work, page, h, weights);
      value_page(work, page, h, values);
    }
  }
  if (kv_packed(head.kv.value_type)) {
    add_packed_minima(work);
  } else if (weighed) {
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
    const auto factor = [&](float x) { return x == joint ? 1.0f : leq_exp(x - joint); };
    const float a = factor(largest), b = factor(m);
    sum = std::fma(l, b, sum * a);
    head.kernels.merge(record, a, b, head.shape.head_dim, total);
    largest = joint;
  }
}

// The factor of o: 1 / l; with a sink s and M' = max(m, s): a / fma(l, a, exp(s - M')), where
// a = exp(m - M').
float output_factor(const HeadBlock& head, int query, float m, float l) {
  if (head.shape.sink_logits == nullptr) return 1.0f / l;
  const int group = head.readers.count, of_head = query % head.head_queries();
  const int kv_head = query / head.head_queries();
  const float s = head.shape.sink_logits[head.readers.first + kv_head * group + of_head % group];
  const float joint = m > s ? m : s;
  const auto factor = [&](float x) { return x == joint ? 1.0f : leq_exp(x - joint); };
  const float a = factor(m);
  return a / std::fma(l, a, factor(s));
}

void finish_records(const HeadBlock& head, const float* totals, float* values,
                    std::int64_t value_stride) {
  const std::int64_t dims = head.shape.head_dim, size = head.plan.record_floats;
  for (int query = 0; query < head.queries(); ++query) {
    const float* total = totals + query * size;
    float* out = values + query_offset(head, query, value_stride);
    head.kernels.scale(total, output_factor(head, query, total[size - 16], total[size - 15]), dims,
                       out);
    if (kv_scheme(head.kv.value_type).rotated) rotate_head(head.packed, out, head.shape.head_dim);
    if (!head.shape.output_gate) continue;
    const float* gates = head.qkv.values + gates_at(head.shape);
    head.rows.gate(gates + query_offset(head, query, head.qkv.value_stride), dims, out);
  }
}

void clear_records(const HeadBlock& head, float* records) {
  for (int query = 0; query < head.queries(); ++query) {
    float* record = records + query * head.plan.record_floats;
    record_total(head, record) = 0.0f;
  }
}

}  // namespace leq::cpu
