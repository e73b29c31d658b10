#include "backend/cpu/attention_plan.h"

#include <algorithm>

namespace leq::cpu {
namespace {

// Enough queries that a page of keys is loaded once for much arithmetic, few enough that their
// scores stay in the second-level cache.
constexpr std::int64_t kBlockQueries = 48;
constexpr std::int64_t kTasksPerThread = 4;
constexpr std::int64_t kWaveSpans = 32;

std::size_t lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// Takes one part after another from a stretch of bytes.
struct Cutter {
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

WorkerScratch cut_worker(const AttentionPlan& plan, const AttentionShape& shape, Cutter& cutter) {
  const std::int64_t queries = plan.block_rows * plan.group;
  const std::int64_t padded = (shape.head_dim + 3) / 4 * 4;
  WorkerScratch part;
  part.scores = cutter.take<float>(queries * kSpanTokens);
  part.span_records = cutter.take<float>(queries * plan.record_floats);
  part.records = cutter.take<float>(queries * plan.record_floats);
  part.wide = cutter.take<float>(std::int64_t{kPageTokens} * shape.head_dim);
  part.lanes = cutter.take<float>(queries * kLaneCount);
  part.code_scales = cutter.take<float>(queries);
  part.code_sums = cutter.take<float>(queries);
  part.codes = cutter.take<std::int8_t>(queries * padded);
  return part;
}

}  // namespace

AttentionPlan plan_attention(int threads, std::int64_t tokens, const AttentionShape& shape,
                             std::int64_t context) {
  AttentionPlan plan;
  plan.threads = threads;
  plan.tokens = tokens;
  plan.group = shape.heads / shape.kv_heads;
  plan.record_floats = (shape.head_dim + 15) / 16 * 16 + 16;
  const std::int64_t width = std::int64_t{shape.heads} * shape.head_dim;
  plan.output_groups = (width + 127) / 128;
  const std::int64_t spans = (context + kSpanTokens - 1) / kSpanTokens;
  const std::int64_t wanted = kTasksPerThread * threads;
  plan.split = spans > 1 && threads > 1 && tokens * shape.kv_heads < wanted;
  plan.wave_spans = std::min(spans, kWaveSpans);
  const std::int64_t most = std::max<std::int64_t>(1, kBlockQueries / plan.group);
  const std::int64_t even = tokens * shape.kv_heads / wanted;
  plan.block_rows = plan.split ? most : std::clamp<std::int64_t>(even, 1, most);

  Cutter cutter;
  cut_worker(plan, shape, cutter);
  plan.worker_bytes = cutter.used;
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

WorkerScratch worker_scratch(const AttentionPlan& plan, const AttentionShape& shape,
                             std::span<std::byte> scratch, int worker) {
  Cutter cutter{scratch.data() + static_cast<std::size_t>(worker) * plan.worker_bytes, 0};
  return cut_worker(plan, shape, cutter);
}

}  // namespace leq::cpu
