#include "backend/cpu/attention/attention_span.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/prefetch.h"

namespace leq::cpu {
namespace {

const KvScheme& keys_of(const SpanWork& work) { return kv_scheme(work.head.kv.key_type); }
const KvScheme& values_of(const SpanWork& work) { return kv_scheme(work.head.kv.value_type); }

constexpr int kHalf = 32;  // a page's positions that have separate queries: a block of keys
static_assert(std::ranges::all_of(kKvSchemes, [](const KvScheme& s) {
  return !s.blocked() || s.block == kHalf;
}));

int group_width(const KvScheme& scheme, int dims) {
  return scheme.group == 0 ? dims : scheme.group;
}

// The tile's first query that reads all positions before `end` as codes, as all later queries do.
int first_closed(const SpanWork& work, Tile queries, std::int64_t end) {
  int query = queries.first;
  while (query < queries.last && work.head.kv.residual.closed_for(work.position_of(query)) < end) {
    ++query;
  }
  return query;
}

// The columns of a page that are attention sinks, which are never read as codes.
Columns sinks_in(const SpanWork& work, int page) {
  return {0, static_cast<int>(std::clamp<std::int64_t>(
                 work.head.kv.residual.sinks - work.page_position(page), 0, kPageTokens))};
}

// Scores against the f16 keys of the 16-key blocks that contain `columns`, written to row(r) [64].
template <class Row>
void score_copies(const SpanWork& work, int page, int kv_head, Tile queries, Columns columns,
                  Row row) {
  const HeadBlock& head = work.head;
  ScoreTile tile;
  tile.keys = work.copy(KvPart::keys, page, kv_head).numbers;
  tile.dims = head.shape.head_dim;
  tile.first_block = columns.first / kKeyBlock;
  tile.last_block = (columns.last + kKeyBlock - 1) / kKeyBlock;
  tile.queries = queries.last - queries.first;
  for (int r = 0; r < tile.queries; ++r) {
    tile.query[r] = work.scratch.queries[queries.first + r];
    tile.scores[r] = row(r);
  }
  head.kernels.kv[static_cast<std::size_t>(KvType::f16)].scores(tile);
}

void score_sinks(const SpanWork& work, int page, int kv_head, Tile queries, Columns sinks) {
  std::array<std::array<float, kPageTokens>, kQueryTile> rows;
  score_copies(work, page, kv_head, queries, sinks,
               [&](int r) { return rows[static_cast<std::size_t>(r)].data(); });
  for (int query = queries.first; query < queries.last; ++query) {
    const float* row = rows[static_cast<std::size_t>(query - queries.first)].data();
    std::copy(row + sinks.first, row + sinks.last, work.scores(query, page) + sinks.first);
  }
}

// Scores from key codes in `columns` (whole blocks), for queries that read these blocks as codes.
void score_closed(const SpanWork& work, int page, int kv_head, Tile queries, Columns columns,
                  Ahead& ahead) {
  const HeadBlock& head = work.head;
  const KvScheme& scheme = keys_of(work);
  const HeadPage keys = work.keys(page, kv_head);
  const int dims = head.shape.head_dim;
  PackedScoreTile tile;
  tile.queries = queries.last - queries.first;
  tile.dims = dims;
  tile.keys = reinterpret_cast<const std::uint8_t*>(keys.numbers);
  tile.first_block = columns.first / kKeyBlock;
  tile.last_block = columns.last / kKeyBlock;
  tile.ahead = ahead;
  ahead = {};
  for (int r = 0; r < tile.queries; ++r) {
    const int query = queries.first + r;
    tile.scores[r] = work.scores(query, page);
    for (int half = columns.first / kHalf; half * kHalf < columns.last; ++half) {
      float* folded = work.scratch.folded + (2 * r + half) * dims;
      head.packed.fold(work.scratch.queries[query], keys.scales + half * dims, dims, folded);
      tile.query[r][half] = folded;
      tile.start[r][half] =
          work.scratch.starts[query * kSpanBlocks + page * (kPageTokens / kHalf) + half];
    }
  }
  head.packed.scores[packed_index(scheme.bits)](tile);
}

// For keys with scales by channel: closed blocks are read as codes, all others as f16 copies.
void score_blocks(const SpanWork& work, int page, int kv_head, Tile queries, Ahead& ahead) {
  const int block = keys_of(work).block;
  const Columns any = in_page(work.any(queries), page);
  const Columns sinks = sinks_in(work, page);
  const auto closed_at = [&](int first) {
    return first_closed(work, queries, work.page_position(page) + first + block);
  };
  for (int first = any.first / block * block; first < any.last;) {
    const int closed = closed_at(first);
    int last = first + block;
    while (last < any.last && closed_at(last) == closed) last += block;
    const Tile coded = {closed, queries.last}, open = {queries.first, closed};
    if (coded.first < coded.last) {
      score_closed(work, page, kv_head, coded, {first, last}, ahead);
      const Columns own = {std::max(first, sinks.first), std::min(last, sinks.last)};
      if (!own.empty()) score_sinks(work, page, kv_head, coded, own);
    }
    if (open.first < open.last) {
      score_copies(work, page, kv_head, open,
                   {std::max(first, any.first), std::min(last, any.last)},
                   [&](int r) { return work.scores(open.first + r, page); });
    }
    first = last;
  }
}

// For keys with scales by token: all queries read codes, never f16 copies.
void score_tokens(const SpanWork& work, int page, int kv_head, Tile queries, Ahead& ahead) {
  const HeadBlock& head = work.head;
  const HeadPage keys = work.keys(page, kv_head);
  const Columns any = in_page(work.any(queries), page);
  PackedScoreTile tile;
  tile.queries = queries.last - queries.first;
  tile.dims = head.shape.head_dim;
  tile.keys = reinterpret_cast<const std::uint8_t*>(keys.numbers);
  tile.first_block = any.first / kKeyBlock;
  tile.last_block = (any.last + kKeyBlock - 1) / kKeyBlock;
  tile.ahead = ahead;
  ahead = {};
  for (int r = 0; r < tile.queries; ++r) {
    tile.query[r][0] = tile.query[r][1] = work.scratch.queries[queries.first + r];
    tile.scores[r] = work.scores(queries.first + r, page);
  }
  head.packed.scores[packed_index(keys_of(work).bits)](tile);
  for (int r = 0; r < tile.queries; ++r) {
    head.packed.rescale(tile.scores[r], any.first, any.last, keys.scales, keys.minima,
                        work.scratch.starts[(queries.first + r) * kSpanBlocks]);
  }
}

// The blocks [first, last) of a span's keys that are visible to a query and read as codes.
Columns closed_blocks(const SpanWork& work, int query) {
  const int block = keys_of(work).block;
  const Columns columns = work.of_query(query);
  const std::int64_t closed = work.head.kv.residual.closed_for(work.position_of(query));
  const std::int64_t end = closed - work.span * kSpanTokens;
  const auto last = static_cast<int>(std::clamp<std::int64_t>(end, 0, columns.last));
  if (columns.empty()) return {};
  return {columns.first / block, (last + block - 1) / block};
}

// Computes z, the initial value of the scores, for key blocks `blocks` and some queries of a head.
void start_blocks(const SpanWork& work, int kv_head, Tile queries, Columns blocks) {
  if (blocks.empty()) return;
  const int block = keys_of(work).block, dims = work.head.shape.head_dim;
  ChainTile tile;
  tile.queries = queries.last - queries.first;
  tile.dims = dims;
  tile.count = blocks.last - blocks.first;
  for (int i = 0; i < tile.count; ++i) {
    const int first = (blocks.first + i) * block;
    tile.rows[i] =
        work.keys(first / kPageTokens, kv_head).minima + first % kPageTokens / block * dims;
  }
  for (int r = 0; r < tile.queries; ++r) {
    const int query = queries.first + r;
    tile.query[r] = work.scratch.queries[query];
    tile.z[r] = work.scratch.starts + query * kSpanBlocks + blocks.first;
  }
  work.head.packed.chains(tile);
}

// Neighbouring queries of a kv head that see the same closed blocks share a call.
void start_queries(const SpanWork& work) {
  const int of_head = work.head.head_queries();
  for (int first = 0; first < work.head.queries();) {
    const int kv_head = first / of_head;
    const int end = std::min((kv_head + 1) * of_head, first + kQueryTile);
    const Columns blocks = closed_blocks(work, first);
    int last = first + 1;
    while (last < end && closed_blocks(work, last) == blocks) ++last;
    start_blocks(work, kv_head, {first, last}, blocks);
    first = last;
  }
}

// The sum over a query's dimensions, accumulated in 16 lanes.
float query_sum(const SpanWork& work, int query) {
  const float* q = work.scratch.queries[query];
  float lanes[kLaneCount] = {};
  for (int c = 0; c < work.head.shape.head_dim; ++c) lanes[c % kLaneCount] += q[c];
  return work.head.kernels.lane_total(lanes);
}

// A query's sums of minima [groups][16], in the scratch [queries][groups][16].
float* lanes_of(const SpanWork& work, int query, int groups) {
  return work.scratch.lanes + std::int64_t{query} * groups * kLaneCount;
}

// Adds weights times value codes at `columns`, for queries that see all of these columns.
void add_codes(const SpanWork& work, int page, int kv_head, Tile queries, Columns columns,
               Ahead& ahead) {
  const HeadBlock& head = work.head;
  const KvScheme& scheme = values_of(work);
  const HeadPage values = work.values(page, kv_head);
  const int dims = head.shape.head_dim, groups = kv_groups(scheme, dims);
  PackedValueTile tile;
  tile.queries = queries.last - queries.first;
  tile.dims = dims;
  tile.group = group_width(scheme, dims);
  tile.values = reinterpret_cast<const std::uint8_t*>(values.numbers);
  tile.row_bytes = value_row_bytes(scheme.bits, dims);
  tile.first = columns.first;
  tile.last = columns.last;
  tile.ahead = ahead;
  ahead = {};
  for (int r = 0; r < tile.queries; ++r) {
    tile.weights[r] = work.scratch.weights + r * groups * kPageTokens;
    tile.out[r] = work.record(queries.first + r);
  }
  WeighTile weigh = {tile.queries, columns.first, columns.last};
  for (int group = 0; group < groups; ++group) {
    weigh.scales = values.scales + group * kPageTokens;
    weigh.minima = values.minima + group * kPageTokens;
    for (int r = 0; r < tile.queries; ++r) {
      const int query = queries.first + r;
      weigh.p[r] = work.scores(query, page);
      weigh.weights[r] = work.scratch.weights + (r * groups + group) * kPageTokens;
      weigh.lanes[r] = lanes_of(work, query, groups) + group * kLaneCount;
    }
    head.kernels.weigh(weigh);
  }
  head.packed.values[packed_index(scheme.bits)](tile);
}

void add_copies(const SpanWork& work, int page, int kv_head, Tile queries, Columns columns) {
  ValueTile tile;
  tile.values = work.copy(KvPart::values, page, kv_head).numbers;
  tile.dims = work.head.shape.head_dim;
  tile.queries = queries.last - queries.first;
  tile.first = columns.first;
  tile.last = columns.last;
  for (int r = 0; r < tile.queries; ++r) {
    tile.weights[r] = work.scores(queries.first + r, page);
    tile.out[r] = work.record(queries.first + r);
  }
  work.head.kernels.kv[static_cast<std::size_t>(KvType::f16)].values(tile);
}

// Adds values in ascending order of columns for each query: sinks, closed blocks, open blocks.
void value_blocks(const SpanWork& work, int page, int kv_head, Tile queries, Ahead& ahead) {
  const Columns sinks = sinks_in(work, page);
  const auto copies = [&](Tile some, Columns limit) {
    if (some.first == some.last || limit.empty()) return;
    each_view(work, page, some, limit,
              [&](Tile view, Columns columns) { add_copies(work, page, kv_head, view, columns); });
  };
  copies(queries, sinks);
  const int block = work.head.kv.residual.block;
  // Neighbouring blocks that are closed for the same queries share a call.
  for (int first = 0; first < kPageTokens;) {
    const auto closed_at = [&](int at) {
      return first_closed(work, queries, work.page_position(page) + at + block);
    };
    const int closed = closed_at(first);
    int last = first + block;
    while (last < kPageTokens && closed_at(last) == closed) last += block;
    const Columns limit = {std::max(first, sinks.last), last};
    copies({queries.first, closed}, limit);
    if (closed < queries.last && !limit.empty()) {
      each_view(work, page, {closed, queries.last}, limit, [&](Tile view, Columns columns) {
        add_codes(work, page, kv_head, view, columns, ahead);
      });
    }
    first = last;
  }
}

}  // namespace

void begin_packed_span(const SpanWork& work) {
  const HeadBlock& head = work.head;
  if (keys_of(work).blocked()) {
    start_queries(work);
  } else if (kv_packed(head.kv.key_type)) {
    for (int query = 0; query < head.queries(); ++query) {
      work.scratch.starts[query * kSpanBlocks] = query_sum(work, query);
    }
  }
  if (!kv_packed(head.kv.value_type)) return;
  const int groups = kv_groups(values_of(work), head.shape.head_dim);
  std::fill_n(work.scratch.lanes, std::int64_t{head.queries()} * groups * kLaneCount, 0.0f);
}

void score_packed_page(const SpanWork& work, int page, int kv_head, Ahead ahead) {
  for (int t = 0; t < tile_count(work.head); ++t) {
    const Tile queries = tile_at(work.head, kv_head, t);
    if (in_page(work.any(queries), page).empty()) continue;
    if (keys_of(work).blocked()) {
      score_blocks(work, page, kv_head, queries, ahead);
    } else {
      score_tokens(work, page, kv_head, queries, ahead);
    }
  }
}

void value_packed_page(const SpanWork& work, int page, int kv_head, Ahead ahead) {
  for (int t = 0; t < tile_count(work.head); ++t) {
    const Tile queries = tile_at(work.head, kv_head, t);
    if (values_of(work).blocked()) {
      value_blocks(work, page, kv_head, queries, ahead);
    } else {
      each_view(work, page, queries, {0, kPageTokens}, [&](Tile view, Columns columns) {
        add_codes(work, page, kv_head, view, columns, ahead);
      });
    }
  }
}

void add_packed_minima(const SpanWork& work) {
  const HeadBlock& head = work.head;
  const int dims = head.shape.head_dim, groups = kv_groups(values_of(work), dims);
  const int width = group_width(values_of(work), dims);
  for (int query = 0; query < head.queries(); ++query) {
    if (work.of_query(query).empty()) continue;
    for (int group = 0; group < groups; ++group) {
      const float z = head.kernels.lane_total(lanes_of(work, query, groups) + group * kLaneCount);
      float* out = work.record(query) + group * width;
      head.kernels.shift(out, z, std::min(width, dims - group * width), out);
    }
  }
}

void rotate_head(const PackedKernels& kernels, float* head, int head_dim) {
  const int block = head_dim & -head_dim;
  const auto root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(block)));
  kernels.rotate(head, head_dim, block, root);
}

}  // namespace leq::cpu
