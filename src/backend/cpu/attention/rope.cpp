// Prepares q, k and v for attention: norms of heads, rotation and q's factor. Stores keys and
// values in the cache's pages.
#include <algorithm>
#include <cmath>
#include <compare>
#include <vector>

#include "backend/checks.h"
#include "backend/cpu/attention/attention.h"
#include "backend/cpu/attention/attention_plan.h"
#include "backend/cpu/attention/attention_span.h"
#include "backend/cpu/attention/kv_pages.h"
#include "backend/cpu/rows/rows.h"
#include "backend/operations.h"
#include "base/error.h"

namespace leq::cpu {
namespace {

// A chunk is a whole block of 16 keys of a page, so that threads do not share cache lines.
constexpr std::int64_t kChunkRows = 16;
// Below this number of values, waking other threads takes more time than it saves.
constexpr std::int64_t kSerialNumbers = 16384;

// The rotation and query factor of a position, which all heads share.
struct HeadRope {
  const AttentionContext& context;
  const AttentionShape& shape;
  const float* cosines =
      nullptr;  // [rotary dims / 2]; null if the model does not have rotary embedding
  const float* sines = nullptr;
  float query_factor = 1;

  void apply(float* head, const Norm* norm) const {
    const std::int64_t dims = shape.head_dim;
    if (norm != nullptr) context.rows.rms_norm(head, norm->gain, norm->eps, dims, head);
    if (cosines != nullptr) context.kernels.rotate(cosines, sines, rotary_dims(shape) / 2, head);
  }
};

// The factor of q at `position`.
float query_factor(const RopeTable& rope, const AttentionShape& shape, std::int64_t position) {
  if (!shape.tempered) return query_scale(shape);
  const auto* factors = reinterpret_cast<const float*>(rope.query_factors.data());
  return factors[position / rope.query_period];
}

void fill_rope(ThreadPool& pool, RopeTable& rope, std::int64_t end) {
  if (end <= rope.filled) return;
  const auto numbers = static_cast<std::int64_t>(2 * rope.inv_freq.size());
  auto* table = reinterpret_cast<float*>(rope.memory.data());
  const std::int64_t first = rope.filled;
  pool.run((end - first + 63) / 64, [&](std::int64_t task, int) {
    const std::int64_t begin = first + task * 64;
    fill_rope_rows(rope, begin, std::min<std::int64_t>(64, end - begin), table + begin * numbers);
  });
  rope.filled = end;
}

// The query heads, the key and the value of one kv head in one row.
struct HeadRow {
  float* query = nullptr;  // [queries][d]
  int queries = 0;
  float* key = nullptr;    // [d]
  float* value = nullptr;  // [d]
};

HeadRow head_row(const Rows& qkv, const AttentionShape& shape, std::int64_t row, int kv_head) {
  const QueryHeads own = query_heads(shape, kv_head);
  float* values = qkv.values + row * qkv.value_stride;
  return {values + std::int64_t{own.first} * shape.head_dim, own.count,
          values + std::int64_t{shape.heads + kv_head} * shape.head_dim,
          values + std::int64_t{shape.heads + shape.kv_heads + kv_head} * shape.head_dim};
}

bool finite(const RowKernels& rows, const HeadRow& head, const AttentionShape& shape) {
  const int dims = shape.head_dim;
  if (!std::isfinite(rows.absmax(head.query, std::int64_t{head.queries} * dims))) return false;
  if (shape.queries_only) return true;
  return std::isfinite(rows.absmax(head.key, dims)) && std::isfinite(rows.absmax(head.value, dims));
}

// The page to which keys or values are written; for schemes with whole blocks, its f16 copy.
HeadPage written_page(const KvLayer& kv, KvPart part, std::int32_t page,
                      const AttentionShape& shape, int kv_head) {
  const KvType type = part == KvPart::keys ? kv.key_type : kv.value_type;
  if (kv_scheme(type).blocked()) {
    return copied_head(kv, part, page, shape.kv_heads, shape.head_dim, kv_head);
  }
  return part == KvPart::keys ? key_head(kv, page, shape.kv_heads, shape.head_dim, kv_head)
                              : value_head(kv, page, shape.kv_heads, shape.head_dim, kv_head);
}

// Prepares and stores the queries, the key and the value of one kv head in one row.
void append_head(const HeadRope& rope, const HeadRow& head, const KvLayer& kv,
                 std::int32_t page_index, std::int64_t slot, int kv_head, float* wide) {
  const AttentionShape& shape = rope.shape;
  const int dims = shape.head_dim;
  const AttentionKernels& kernels = rope.context.kernels;
  const PackedKernels& packed = rope.context.packed;
  const bool rotated_keys = kv_scheme(kv.key_type).rotated;
  for (int g = 0; g < head.queries; ++g) {
    float* query = head.query + g * dims;
    rope.apply(query, shape.q_norm);
    kernels.scale(query, rope.query_factor, dims, query);
    if (rotated_keys) rotate_head(packed, query, dims);
  }
  if (shape.queries_only) return;
  rope.apply(head.key, shape.k_norm);
  if (shape.key_offset != nullptr) {
    const float* offset = shape.key_offset + std::int64_t{kv_head} * dims;
    for (int c = 0; c < dims; ++c) head.key[c] = head.key[c] - offset[c];
  }
  if (rotated_keys) rotate_head(packed, head.key, dims);
  if (const Norm* norm = shape.v_norm; norm != nullptr) {
    rope.context.rows.rms_norm(head.value, norm->gain, norm->eps, dims, head.value);
  }
  if (kv_scheme(kv.value_type).rotated) rotate_head(packed, head.value, dims);
  const StoreKernels stores = {kernels, packed};
  store_key(stores, kv.key_type, head.key, dims, slot,
            written_page(kv, KvPart::keys, page_index, shape, kv_head), wide);
  store_value(stores, kv.value_type, head.value, dims, slot,
              written_page(kv, KvPart::values, page_index, shape, kv_head));
}

// Slots [first, last) of a page whose blocks have been closed and are now quantized.
struct ClosedPage {
  std::int32_t page = 0;
  std::int64_t position = 0;  // position of slot 0
  int first = 0, last = 0;
  int sinks = 0;

  auto operator<=>(const ClosedPage&) const = default;
};

enum class Whole : std::uint8_t { before_the_batch, by_the_batch };

// Each page is listed once, even if runs share it. Pages without copies are already quantized.
std::vector<ClosedPage> closed_pages(const BatchView& batch, const KvLayer& kv, Whole whole) {
  std::vector<ClosedPage> pages;
  for (const SequenceRun& run : batch.runs) {
    const std::int64_t before = kv.residual.whole_before(run.first_position, run.end_position());
    const bool early = whole == Whole::before_the_batch;
    std::int64_t at = early ? kv.residual.quantized(run.first_position) : before;
    const std::int64_t end = early ? before : kv.residual.quantized(run.end_position());
    while (at < end) {
      const std::int64_t base = at / kPageTokens * kPageTokens;
      const std::int64_t last = std::min(end, base + kPageTokens);
      const std::int32_t page = run.pages[static_cast<std::size_t>(at / kPageTokens)];
      if (kv.copies[static_cast<std::size_t>(page)] >= 0) {
        pages.push_back({page, base, static_cast<int>(at - base), static_cast<int>(last - base),
                         base == 0 ? kv.residual.sinks : 0});
      }
      at = last;
    }
  }
  std::ranges::sort(pages);
  std::vector<ClosedPage> merged;
  for (const ClosedPage& one : pages) {
    if (merged.empty() || merged.back().page != one.page) {
      merged.push_back(one);
    } else {
      merged.back().last = std::max(merged.back().last, one.last);
    }
  }
  return merged;
}

// Writes the final codes of keys and values of one kv head in one layer.
void quantize_head(const AttentionContext& context, const ClosedPage& closed,
                   const AttentionShape& shape, const KvLayer& kv, int kv_head, float* wide) {
  if (kv.place(closed.page) < 0) return;  // outside the window
  const StoreKernels kernels = {context.kernels, context.packed};
  const auto copy = [&](KvPart part) {
    return copied_head(kv, part, closed.page, shape.kv_heads, shape.head_dim, kv_head);
  };
  KvBlockWork work = {kv.key_type, shape.head_dim, closed.first, closed.last, closed.sinks};
  if (kv_scheme(kv.key_type).blocked()) {
    quantize_keys(kernels, work, copy(KvPart::keys),
                  key_head(kv, closed.page, shape.kv_heads, shape.head_dim, kv_head), wide);
  }
  work.type = kv.value_type;
  if (kv_scheme(kv.value_type).blocked()) {
    quantize_values(kernels, work, copy(KvPart::values),
                    value_head(kv, closed.page, shape.kv_heads, shape.head_dim, kv_head), wide);
  }
}

void quantize_pages(const AttentionContext& context, const AttentionPlan& plan,
                    const std::vector<ClosedPage>& pages, const AttentionShape& shape,
                    std::span<const KvLayer> layers) {
  const std::int64_t heads = shape.kv_heads, each = std::ssize(pages) * heads;
  context.pool.run(std::ssize(layers) * each, [&](std::int64_t task, int worker) {
    quantize_head(context, pages[static_cast<std::size_t>(task % each / heads)], shape,
                  layers[static_cast<std::size_t>(task / each)], static_cast<int>(task % heads),
                  worker_scratch(plan, shape, context.scratch, worker).wide);
  });
}

}  // namespace

void quantize_kv_blocks(const AttentionContext& context, const BatchView& batch,
                        const AttentionShape& shape, std::span<const KvLayer> layers) {
  if (shape.kv_heads == 0 || layers.empty()) return;
  check_pages(batch);
  const std::vector<ClosedPage> pages = closed_pages(batch, layers[0], Whole::before_the_batch);
  if (pages.empty()) return;
  const AttentionPlan plan =
      plan_attention(context.pool.threads(), batch.tokens, shape, batch.end_position());
  require_scratch(plan, context.scratch);
  quantize_pages(context, plan, pages, shape, layers);
}

void rope_append(const AttentionContext& context, Rows& qkv, const BatchView& batch,
                 const AttentionShape& shape, RopeTable& rope, const KvLayer& kv) {
  if (shape.kv_heads == 0) return;  // all heads are on other ranks
  check_pages(batch);
  const std::int64_t end = batch.end_position();
  check_query_factors(rope, shape, end);
  if (shape.rotary) {
    check_rope(rope, shape, end);
    fill_rope(context.pool, rope, end);
  }
  const auto* table = reinterpret_cast<const float*>(rope.memory.data());
  const AttentionPlan plan = plan_attention(context.pool.threads(), batch.tokens, shape, end);
  require_scratch(plan, context.scratch);
  // Packed codes of different keys of a page share bytes, so that one task processes a whole page.
  const bool packed = kv_packed(kv.key_type);
  const auto chunks = cut_runs(batch, packed ? kPageTokens : kChunkRows, BlockEnds::aligned);
  FirstBadRow bad;

  const auto append = [&](std::int64_t chunk, int kv_head, int worker) {
    const RowBlock& block = chunks[static_cast<std::size_t>(chunk)];
    float* wide = worker_scratch(plan, shape, context.scratch, worker).wide;
    for (std::int64_t i = 0; i < block.rows; ++i) {
      const std::int64_t position = block.first_position + i;
      const HeadRow head = head_row(qkv, shape, block.first_row + i, kv_head);
      if (!finite(context.rows, head, shape)) {
        bad.report(block.first_row + i);
        continue;
      }
      HeadRope head_rope{context, shape};
      if (shape.rotary) {
        head_rope.cosines = table + position * rotary_dims(shape);
        head_rope.sines = head_rope.cosines + rotary_dims(shape) / 2;
      }
      head_rope.query_factor = query_factor(rope, shape, position);
      const std::int32_t page = block.pages[static_cast<std::size_t>(position / kPageTokens)];
      append_head(head_rope, head, kv, page, position % kPageTokens, kv_head, wide);
    }
  };

  const auto tasks = std::ssize(chunks) * shape.kv_heads;
  if (batch.tokens * qkv.width <= kSerialNumbers) {
    for (std::int64_t task = 0; task < tasks; ++task) {
      append(task / shape.kv_heads, static_cast<int>(task % shape.kv_heads), 0);
    }
  } else {
    context.pool.run(tasks, [&](std::int64_t task, int worker) {
      append(task / shape.kv_heads, static_cast<int>(task % shape.kv_heads), worker);
    });
  }
  bad.check("input of attention");
  if (shape.queries_only) return;
  const std::vector<ClosedPage> closed = closed_pages(batch, kv, Whole::by_the_batch);
  if (!closed.empty()) quantize_pages(context, plan, closed, shape, {&kv, 1});
}

}  // namespace leq::cpu
