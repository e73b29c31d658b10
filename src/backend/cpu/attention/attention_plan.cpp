#include "backend/cpu/attention/attention_plan.h"

#include <algorithm>

#include "backend/cpu/attention/attention.h"
#include "backend/cpu/kernels/kernels.h"
#include "base/error.h"

namespace leq::cpu {
namespace {

// Queries per block: enough that each loaded page of keys is used for many products, but few enough
// that their scores remain in the L2 cache.
constexpr std::int64_t kBlockQueries = 96;
constexpr std::int64_t kTasksPerThread = 4;
// Bytes that are read contiguously. Small pieces that are far apart are read slowly: of 44 GB/s at
// most, read-only loops reach 32 GB/s with pieces of 16 KB and 36 GB/s with 48 KB. A Zen 4 reads 12
// heads of f16 in pieces of 96 KB 1.3 times as fast as in pieces of 64 and 32 KB.
constexpr std::int64_t kPieceBytes = 128 * 1024;
constexpr std::int64_t kMaxHeads = 16;  // most kv heads that are read together
constexpr std::int64_t kFewHeads = 4;   // heads of < 128 columns that form a long enough piece
constexpr std::int64_t kWaveSpans = 32;

// Batches with fewer (rows x kv heads) than this are also divided by spans. Heads of fewer than 128
// columns need more units, because several are read together; larger heads are read one at a time.
std::int64_t fewest_units(int threads, const AttentionShape& shape) {
  return kTasksPerThread * threads * (shape.head_dim < 128 ? kFewHeads : 1);
}

std::size_t lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// Allocates consecutive parts of a byte range; if `next` is null it only counts bytes.
struct ScratchAllocator {
  std::byte* next = nullptr;
  std::size_t used = 0;

  template <class T>
  T* take(std::int64_t count) {
    const std::size_t bytes = lines(static_cast<std::size_t>(count) * sizeof(T));
    T* part = next == nullptr ? nullptr : reinterpret_cast<T*>(next + used);
    used += bytes;
    return part;
  }
};

// The largest number of value groups in any scheme.
std::int64_t most_groups(const AttentionShape& shape) {
  int most = 1;
  for (const KvScheme& scheme : kKvSchemes)
    most = std::max(most, kv_groups(scheme, shape.head_dim));
  return most;
}

WorkerScratch allocate_worker(const AttentionPlan& plan, const AttentionShape& shape,
                              ScratchAllocator& allocator) {
  const std::int64_t queries = plan.block_queries;
  const std::int64_t padded = (shape.head_dim + 3) / 4 * 4;
  WorkerScratch part;
  part.scores = allocator.take<float>(queries * kSpanTokens);
  part.span_records = allocator.take<float>(queries * plan.record_floats);
  part.records = allocator.take<float>(queries * plan.record_floats);
  part.wide = allocator.take<float>(std::int64_t{kPageTokens} * shape.head_dim);
  part.lanes = allocator.take<float>(queries * most_groups(shape) * kLaneCount);
  part.folded = allocator.take<float>(std::int64_t{2} * kQueryTile * shape.head_dim);
  part.weights = allocator.take<float>(std::int64_t{kQueryTile} * most_groups(shape) * kPageTokens);
  part.starts = allocator.take<float>(queries * kSpanBlocks);
  part.code_scales = allocator.take<float>(queries);
  part.code_sums = allocator.take<float>(queries);
  part.queries = allocator.take<const float*>(queries);
  part.firsts = allocator.take<std::int32_t>(queries);
  part.lasts = allocator.take<std::int32_t>(queries);
  part.codes = allocator.take<std::int8_t>(queries * padded);
  return part;
}

}  // namespace

AttentionPlan plan_attention(int threads, std::int64_t tokens, const AttentionShape& shape,
                             std::int64_t context) {
  AttentionPlan plan;
  plan.threads = threads;
  plan.tokens = tokens;
  plan.group = query_group(shape);
  plan.record_floats = (shape.head_dim + 15) / 16 * 16 + 16;
  const std::int64_t width = std::int64_t{shape.heads} * shape.head_dim;
  plan.output_groups = (width + 127) / 128;
  plan.spans = (context + kSpanTokens - 1) / kSpanTokens;
  const std::int64_t wanted = kTasksPerThread * threads;
  plan.split =
      plan.spans > 1 && threads > 1 && tokens * shape.kv_heads < fewest_units(threads, shape);
  plan.wave_spans = std::min(plan.spans, kWaveSpans);
  const std::int64_t most = std::max<std::int64_t>(1, kBlockQueries / plan.group);
  const std::int64_t even = tokens * shape.kv_heads / wanted;
  plan.block_rows = plan.split ? most : std::clamp<std::int64_t>(even, 1, most);

  plan.block_queries = most * plan.group;

  ScratchAllocator allocator;
  allocate_worker(plan, shape, allocator);
  plan.worker_bytes = allocator.used;
  const auto count = [](std::int64_t numbers) {
    return lines(static_cast<std::size_t>(numbers) * sizeof(float));
  };
  plan.value_bytes = count(tokens * width);
  std::int64_t counters = tokens * plan.output_groups;
  if (plan.split) {
    plan.total_bytes = count(tokens * shape.heads * plan.record_floats);
    plan.partial_bytes = count(tokens * shape.heads * plan.wave_spans * plan.record_floats);
    counters += tokens * shape.kv_heads;
  }
  plan.counter_bytes = count(counters);
  return plan;
}

std::int64_t heads_together(const AttentionPlan& plan, const AttentionShape& shape,
                            std::int64_t blocks, std::int64_t rows, std::int64_t part_bytes) {
  const std::int64_t tasks = blocks * shape.kv_heads * (plan.split ? plan.spans : 1);
  const std::int64_t shared = plan.threads > 1 ? tasks / (kTasksPerThread * plan.threads) : tasks;
  const std::int64_t most = std::min({kMaxHeads, plan.block_queries / (rows * plan.group), shared});
  const std::int64_t wanted = (kPieceBytes + part_bytes - 1) / part_bytes;
  return std::max<std::int64_t>(1, std::min(wanted, most));
}

void require_scratch(const AttentionPlan& plan, std::span<const std::byte> scratch) {
  ensure(plan.bytes() <= scratch.size(), "attention: ", plan.tokens, " rows need ", plan.bytes(),
         " bytes of scratch, ", scratch.size(), " are reserved; reserve for larger batches");
}

SharedScratch shared_scratch(const AttentionPlan& plan, std::span<std::byte> scratch) {
  std::byte* next = scratch.data() + static_cast<std::size_t>(plan.threads) * plan.worker_bytes;
  SharedScratch parts;
  parts.partials = reinterpret_cast<float*>(next);
  next += plan.partial_bytes;
  parts.totals = reinterpret_cast<float*>(next);
  next += plan.total_bytes;
  parts.counters = reinterpret_cast<std::int32_t*>(next);
  next += plan.counter_bytes;
  parts.values = reinterpret_cast<float*>(next);
  return parts;
}

WorkerScratch worker_scratch(const AttentionPlan& plan, const AttentionShape& shape,
                             std::span<std::byte> scratch, int worker) {
  ScratchAllocator allocator{scratch.data() + static_cast<std::size_t>(worker) * plan.worker_bytes,
                             0};
  return allocate_worker(plan, shape, allocator);
}

std::size_t attention_scratch_bytes(int threads, std::int64_t tokens, const AttentionShape& shape,
                                    std::int64_t context) {
  if (shape.kv_heads == 0) return 0;
  // The largest batch that is divided by spans may need more scratch than a larger batch does.
  const std::int64_t few = (fewest_units(threads, shape) - 1) / shape.kv_heads;
  const std::size_t bytes = plan_attention(threads, tokens, shape, context).bytes();
  if (few < 1 || few >= tokens) return bytes;
  return std::max(bytes, plan_attention(threads, few, shape, context).bytes());
}

}  // namespace leq::cpu
