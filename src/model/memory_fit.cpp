#include "model/memory_fit.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

// For example "6.90 GB of the device's 8.20 GB are free", or a text about the user's cap.
std::string free_text(const DeviceMemoryInfo& memory) {
  if (memory.cap > 0 && memory.bytes >= memory.cap) {
    return Setting{"memory_cap"}.marked() + " allows " + human_bytes(memory.cap);
  }
  return human_bytes(memory.bytes) + " of the device's " + human_bytes(memory.total) + " are free";
}

std::string advice(const RunLimits& limits) {
  // int8 is the smallest KV type that every device supports.
  const KvScheme& least = kv_scheme(KvType::int8);
  const auto small = [&](KvType type) { return kv_scheme(type).bits <= least.bits; };
  const bool small_cache = small(limits.key_type) && small(limits.value_type);
  const std::string name(least.name);
  const std::string cache = Setting{"key_type"}.marked() + " " + name + " " +
                            Setting{"value_type"}.marked() + " " + name + ", ";
  return (small_cache ? "" : cache) + "a smaller " + Setting{"batch_tokens"}.marked() +
         " or a smaller type of weights make room, " + Setting{"device"}.marked() +
         " cpu uses the host's memory";
}

}  // namespace

std::string plan_text(const MemoryPlan& plan) {
  return "weights " + human_bytes(plan.weight_bytes) + " + KV cache " + human_bytes(plan.kv_bytes) +
         (plan.state_bytes > 0 ? " + states " + human_bytes(plan.state_bytes) : "") +
         " + scratch " + human_bytes(plan.scratch_bytes) + " = " + human_bytes(plan.total());
}

MemoryPlanner::MemoryPlanner(const Model& model, const Layout& layout)
    : MemoryPlanner(model, layout, place_of(model.config(), 0, 1)) {}

MemoryPlanner::MemoryPlanner(const Model& model, const Layout& layout, const RankPlace& place)
    : MemoryPlanner([&](std::string_view name) { return model.file().find(name); },
                    model.file().name(), model.config(), model.file().file_bytes(), layout, place) {
}

MemoryPlanner::MemoryPlanner(const TensorFinder& find, std::string source,
                             const ModelConfig& config, std::uint64_t weight_bytes,
                             const Layout& layout, const RankPlace& place)
    : source_(std::move(source)),
      config_(config),
      layout_(layout),
      file_bytes_(weight_bytes),
      place_(place),
      memory_(layout),
      weights_(bind_weights(find, source_, config, memory_, place)) {}

MemoryPlan MemoryPlanner::plan(const RunLimits& resolved) const {
  return plan_rank_memory(file_bytes_, config_, weights_, layout_, resolved, place_);
}

// Bisects over the number of pages, which works because plans grow with the context.
std::int64_t MemoryPlanner::largest_context(RunLimits limits, std::int64_t most,
                                            std::uint64_t bytes) const {
  const std::int64_t page = std::int64_t{kPageTokens} * limits.sequences;
  std::int64_t fits = 0;
  std::int64_t beyond = most / kPageTokens + 1;
  while (beyond - fits > 1) {
    const std::int64_t middle = fits + (beyond - fits) / 2;
    limits.context = middle * page;
    (plan(resolve_limits(limits, config_)).total() <= bytes ? fits : beyond) = middle;
  }
  return fits * page;
}

FittedLimits MemoryPlanner::fit(const RunLimits& wanted, const DeviceMemoryInfo& memory,
                                std::string_view device) const {
  const RunLimits limits = resolve_limits(wanted, config_);
  const MemoryPlan whole = plan(limits);
  if (whole.total() <= memory.bytes) return {limits, ""};
  const std::int64_t largest =
      largest_context(wanted, limits.context / limits.sequences, memory.bytes);
  const std::string found = plan_text(whole) + ", " + free_text(memory) + "; ";
  const std::string context = with_commas(limits.context);
  require(largest > 0, ErrorKind::no_memory, source_, ": does not fit on ", device,
          " with a context of ", context, ": ", found, "no context fits; ", advice(wanted));
  require(wanted.context == 0, ErrorKind::no_memory, source_, ": does not fit on ", device,
          " with a context of ", context, ": ", found, "the largest context that fits is ",
          with_commas(largest), ": use ", Setting{"context"}, " ", largest, "; ", advice(wanted));
  RunLimits cut = wanted;
  cut.context = largest;
  return {resolve_limits(cut, config_), "context cut to " + with_commas(largest) + " of " +
                                            context + " positions, which would take " + found +
                                            advice(wanted)};
}

FittedLimits fit_limits(const RunLimits& wanted, const Model& model, Backend& backend) {
  return fit_limits(wanted, model, backend, place_of(model.config(), 0, 1));
}

FittedLimits fit_limits(const RunLimits& wanted, const Model& model, Backend& backend,
                        const RankPlace& place) {
  const auto memory = backend.memory().info();
  if (!memory) return {resolve_limits(wanted, model.config()), ""};
  return MemoryPlanner(model, backend.layout(), place).fit(wanted, *memory, backend.name());
}

FittedLimits fit_limits(const RunLimits& wanted, const Model& model,
                        std::span<Backend* const> ranks) {
  FittedLimits least = {resolve_limits(wanted, model.config()), ""};
  const auto count = static_cast<int>(ranks.size());
  for (int rank = 0; rank < count; ++rank) {
    FittedLimits fitted = fit_limits(wanted, model, *ranks[static_cast<std::size_t>(rank)],
                                     place_of(model.config(), rank, count));
    if (fitted.limits.context < least.limits.context) least = std::move(fitted);
  }
  return least;
}

}  // namespace leq
