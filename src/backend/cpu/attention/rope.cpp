// The way of q, k and v into attention: norms of heads, rotation, q's factor, and the cache's
// pages.
#include <algorithm>
#include <cmath>

#include "backend/checks.h"
#include "backend/cpu/attention/attention.h"
#include "backend/cpu/attention/attention_plan.h"
#include "backend/cpu/attention/kv_layout.h"
#include "backend/cpu/attention/row_blocks.h"
#include "backend/cpu/rows/first_bad_row.h"
#include "backend/tables.h"
#include "base/error.h"

namespace leq::cpu {
namespace {

// Rows that fill whole blocks of 16 keys of a page, so that threads do not share cache lines.
constexpr std::int64_t kChunkRows = 16;
// Below this many numbers waking other threads costs more than it brings.
constexpr std::int64_t kSerialNumbers = 16384;

// One row's way: what all heads of a position share.
struct HeadTurn {
  const AttentionContext& context;
  const AttentionShape& shape;
  const float* cosines = nullptr;  // [d/2]; null where the model has no rotary embedding
  const float* sines = nullptr;

  void apply(float* head, const Norm* norm) const {
    const std::int64_t dims = shape.head_dim;
    if (norm != nullptr) context.rows.rms_norm(head, norm->gain, norm->eps, dims, head);
    if (cosines != nullptr) context.kernels.rotate(cosines, sines, dims / 2, head);
  }
};

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

// Dimension c of a float key lies 16 numbers after dimension c - 1.
template <class Number>
void spread_key(const Number* key, int dims, std::int64_t slot, std::byte* numbers) {
  auto* at =
      reinterpret_cast<Number*>(numbers) + slot / kKeyBlock * dims * kKeyBlock + slot % kKeyBlock;
  for (int c = 0; c < dims; ++c) at[c * kKeyBlock] = key[c];
}

// Dimensions lie in quads, 64 bytes apart.
void spread_key_codes(const std::uint8_t* codes, int dims, std::int64_t slot, std::byte* numbers) {
  const int quads = (dims + 3) / 4;
  auto* at = reinterpret_cast<std::uint8_t*>(numbers) + slot / kKeyBlock * quads * 64 +
             slot % kKeyBlock * 4;
  for (int c = 0; c < dims; ++c) at[c / 4 * 64 + c % 4] = codes[c];
}

const KvKernels& kernels_of(const AttentionKernels& kernels, KvType type) {
  return kernels.kv[static_cast<std::size_t>(type)];
}

// `wide` is scratch of d floats: a key's numbers lie apart in its page.
void store_key(const AttentionKernels& kernels, KvType type, const float* key, int dims,
               std::int64_t slot, const HeadPage& page, float* wide) {
  kernels_of(kernels, type).store(key, dims, wide, page.scale(slot), page.minimum(slot));
  if (kv_coded(type)) {
    spread_key_codes(reinterpret_cast<const std::uint8_t*>(wide), dims, slot, page.numbers);
  } else if (number_bytes(type) == sizeof(float)) {
    spread_key(wide, dims, slot, page.numbers);
  } else {
    spread_key(reinterpret_cast<const std::uint16_t*>(wide), dims, slot, page.numbers);
  }
}

void store_value(const AttentionKernels& kernels, KvType type, const float* value, int dims,
                 std::int64_t slot, const HeadPage& page) {
  std::byte* at = page.numbers + static_cast<std::size_t>(slot * dims) * number_bytes(type);
  kernels_of(kernels, type).store(value, dims, at, page.scale(slot), page.minimum(slot));
}

// The query heads, key and value of one kv head in one row.
struct HeadRow {
  float* query = nullptr;  // [group][d]
  float* key = nullptr;    // [d]
  float* value = nullptr;  // [d]
};

HeadRow head_row(const Rows& qkv, const AttentionShape& shape, std::int64_t row, int kv_head) {
  const int group = shape.heads / shape.kv_heads;
  float* values = qkv.values + row * qkv.value_stride;
  return {values + std::int64_t{kv_head} * group * shape.head_dim,
          values + std::int64_t{shape.heads + kv_head} * shape.head_dim,
          values + std::int64_t{shape.heads + shape.kv_heads + kv_head} * shape.head_dim};
}

bool finite(const RowKernels& rows, const HeadRow& head, int group, int dims) {
  return std::isfinite(rows.absmax(head.query, std::int64_t{group} * dims)) &&
         std::isfinite(rows.absmax(head.key, dims)) && std::isfinite(rows.absmax(head.value, dims));
}

// One kv head of one row.
void append_head(const HeadTurn& turn, const HeadRow& head, const KvLayer& kv,
                 std::int32_t page_index, std::int64_t slot, int kv_head, float* wide) {
  const AttentionShape& shape = turn.shape;
  const int dims = shape.head_dim, group = shape.heads / shape.kv_heads;
  const AttentionKernels& kernels = turn.context.kernels;
  const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dims)));
  for (int g = 0; g < group; ++g) {
    float* query = head.query + g * dims;
    turn.apply(query, shape.q_norm);
    kernels.scale(query, factor, dims, query);
  }
  turn.apply(head.key, shape.k_norm);
  store_key(kernels, kv.key_type, head.key, dims, slot,
            key_head(kv, page_index, shape.kv_heads, dims, kv_head), wide);
  store_value(kernels, kv.value_type, head.value, dims, slot,
              value_head(kv, page_index, shape.kv_heads, dims, kv_head));
}

}  // namespace

void rope_append(const AttentionContext& context, Rows& qkv, const BatchView& batch,
                 const AttentionShape& shape, RopeTable& rope, const KvLayer& kv) {
  check_pages(batch);
  const std::int64_t end = batch.end_position();
  if (shape.rotary) {
    check_rope(rope, shape, end);
    fill_rope(context.pool, rope, end);
  }
  const auto* table = reinterpret_cast<const float*>(rope.memory.data());
  const int dims = shape.head_dim, group = shape.heads / shape.kv_heads;
  const AttentionPlan plan = plan_attention(context.pool.threads(), batch.tokens, shape, end);
  require_scratch(plan, context.scratch);
  const auto chunks = cut_runs(batch, kChunkRows, BlockEnds::aligned);
  FirstBadRow bad;

  const auto append = [&](std::int64_t chunk, int kv_head, int worker) {
    const RowBlock& block = chunks[static_cast<std::size_t>(chunk)];
    float* wide = worker_scratch(plan, shape, context.scratch, worker).wide;
    for (std::int64_t i = 0; i < block.rows; ++i) {
      const std::int64_t position = block.first_position + i;
      const HeadRow head = head_row(qkv, shape, block.first_row + i, kv_head);
      if (!finite(context.rows, head, group, dims)) {
        bad.report(block.first_row + i);
        continue;
      }
      HeadTurn turn{context, shape};
      if (shape.rotary) {
        turn.cosines = table + position * dims;
        turn.sines = turn.cosines + dims / 2;
      }
      const std::int32_t page = block.pages[static_cast<std::size_t>(position / kPageTokens)];
      append_head(turn, head, kv, page, position % kPageTokens, kv_head, wide);
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
}

}  // namespace leq::cpu
