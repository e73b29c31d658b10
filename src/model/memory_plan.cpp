#include "model/memory_plan.h"

#include <algorithm>
#include <utility>

#include "backend/layout.h"
#include "base/error.h"
#include "base/text.h"
#include "cache/sequence_state.h"
#include "model/kv_layers.h"
#include "model/workspace.h"

namespace leq {
namespace {

constexpr std::int64_t kDefaultContext = 8192;

// Sets the window of the layers of the cache that no layer reads beyond a window.
void set_windows(const ModelConfig& config, KvShape& shape) {
  const std::vector<std::int64_t> cached = config.cache_layers();
  std::vector<bool> windowed(cached.size(), true);
  for (const std::int64_t layer : config.attention_layers()) {
    const std::int64_t owner = config.layers[static_cast<std::size_t>(layer)].attention()->kv_of;
    const auto found = std::ranges::find(cached, owner >= 0 ? owner : layer) - cached.begin();
    if (config.window(layer) == 0) windowed[static_cast<std::size_t>(found)] = false;
    shape.window = std::max<std::int64_t>(shape.window, config.window(layer));
  }
  const auto count = std::ranges::count(windowed, true);
  if (count == 0) shape.window = 0;
  if (count > 0 && count < std::ssize(windowed)) shape.layer_windowed = std::move(windowed);
}

void require_range(MessagePart what, std::int64_t value, std::int64_t low, std::int64_t high) {
  require(value >= low && value <= high, ErrorKind::bad_setting, what, " ", value, ": expected ",
          low, " to ", high);
}

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

// A text such as "weights 3.52 GB + KV cache 1.07 GB + scratch 160 MB = 4.75 GB".
std::string plan_text(const MemoryPlan& plan) {
  return "weights " + human_bytes(plan.weight_bytes) + " + KV cache " + human_bytes(plan.kv_bytes) +
         (plan.state_bytes > 0 ? " + states " + human_bytes(plan.state_bytes) : "") +
         " + scratch " + human_bytes(plan.scratch_bytes) + " = " + human_bytes(plan.total());
}

}  // namespace

KvType default_kv_type(std::string_view model_type) {
  return model_type == "f32" ? kExactKv : kUsualKv;
}

namespace {

std::int64_t default_kept_states(const ModelConfig& config) {
  if (config.state_layers().empty()) return kMinDefaultStates;
  const auto each =
      static_cast<std::int64_t>(fixed_state_bytes(config, place_of(config, 0, 1).own()));
  return std::clamp(kKeptStateBytes / each, kMinDefaultStates, kMaxDefaultStates);
}

}  // namespace

std::int64_t longest_context(const ModelConfig& config) {
  std::int64_t longest = config.context;
  for (const auto& [theta, scaling, dims] : config.ropes()) {
    const bool dynamic = scaling.kind == RopeScalingKind::dynamic;
    if (!dynamic && scaling.kind != RopeScalingKind::yarn) continue;
    const std::int64_t base = dynamic ? config.context : scaling.original_context;
    const double stretched = static_cast<double>(base) * std::max(1.0, scaling.factor);
    longest = std::max(longest, static_cast<std::int64_t>(stretched));
  }
  return longest;
}

RunLimits resolve_limits(RunLimits limits, const ModelConfig& config) {
  const std::int64_t longest = longest_context(config);
  require_range(Setting{"sequences"}, limits.sequences, 1, 4096);
  if (limits.context == 0)
    limits.context = std::min(config.context, kDefaultContext) *
                     (limits.sequence_context == 0 ? limits.sequences : 1);
  require(limits.context > 0 && limits.context / limits.sequences >= 1, Setting{"context"}, " ",
          limits.context, ": expected at least one position for each of ", limits.sequences,
          " sequences");
  if (limits.sequence_context == 0) {
    limits.sequence_context = limits.context / limits.sequences;
    require(limits.sequence_context <= longest, Setting{"context"}, " ", limits.context,
            ": that is ", limits.sequence_context, " positions a sequence, the model has at most ",
            longest, "; use ", Setting{"context"}, " ", longest * limits.sequences, " or less");
  }
  limits.sequence_context = std::min({limits.sequence_context, limits.context, longest});
  for (const KvLayerTypes& own : limits.kv_layers) {
    require(own.last < config.layer_count(), ErrorKind::bad_setting, Setting{"kv_layers"}, " ",
            kv_layers_text({&own, 1}), ": this model has layers 0 to ", config.layer_count() - 1);
  }
  require_range(Setting{"batch_tokens"}, limits.batch_tokens, 1, 1 << 16);
  if (config.both_ways()) {  // which reads whole texts
    limits.batch_tokens = std::max(limits.batch_tokens, limits.sequence_context);
    limits.output_tokens = limits.batch_tokens;
    // Rows would see packed keys of later blocks: nothing keeps a cache that lives for one step.
    if (kv_residual(limits).copies()) {
      limits.key_type = limits.value_type = kUsualKv;
      limits.kv_layers.clear();
      limits.kv_sinks.reset();
      limits.kv_recent.reset();
    }
  }
  limits.batch_tokens = std::min(limits.batch_tokens, limits.context);
  if (limits.kv_sinks) require_range(Setting{"kv_sinks"}, *limits.kv_sinks, 0, kPageTokens);
  if (limits.kv_recent) require_range(Setting{"kv_recent"}, *limits.kv_recent, 0, 1 << 20);
  if (limits.kept_states == -1) limits.kept_states = default_kept_states(config);
  require_range(Setting{"kept_states"}, limits.kept_states, 0, kMaxKeptStates);
  require_range("output rows", limits.output_tokens, 1, 1 << 16);
  limits.output_tokens = std::min(limits.output_tokens, limits.batch_tokens);
  return limits;
}

MemoryPlan plan_memory(std::uint64_t file_bytes, const ModelConfig& config, const Weights& weights,
                       const Layout& layout, const RunLimits& limits, const RankPlace& place) {
  CountingMemory memory(layout);
  const KvPages pages(memory, layout, rank_kv_shape(config, weights, layout, limits, place));
  MemoryPlan plan;
  plan.weight_bytes = weights.memory_bytes > 0 ? weights.memory_bytes : file_bytes;
  plan.kv_bytes = memory.allocated();
  const auto states = make_fixed_states(memory, config, limits, place.own());
  plan.state_bytes = memory.allocated() - plan.kv_bytes;
  const Workspace work(config, weights, memory, layout, forward_limits(limits), place);
  plan.scratch_bytes = memory.allocated() - plan.kv_bytes - plan.state_bytes;
  return plan;
}

KvType layer_type(const RunLimits& limits, std::int64_t layer, KvPart part) {
  KvType type = part == KvPart::keys ? limits.key_type : limits.value_type;
  for (const KvLayerTypes& own : limits.kv_layers) {
    if (layer >= own.first && layer <= own.last) {
      type = part == KvPart::keys ? own.keys : own.values;
    }
  }
  return type;
}

KvResidual kv_residual(const RunLimits& limits) {
  KvResidual residual = kv_residual(limits.key_type, limits.value_type);
  for (const KvLayerTypes& own : limits.kv_layers) {
    const KvResidual more = kv_residual(own.keys, own.values);
    residual = {std::max(residual.sinks, more.sinks), std::max(residual.recent, more.recent),
                std::max(residual.block, more.block)};
  }
  if (limits.kv_sinks) residual.sinks = *limits.kv_sinks;
  if (limits.kv_recent) residual.recent = *limits.kv_recent;
  return residual;
}

namespace {

void set_heads(std::vector<KvHeads> heads, KvShape& shape) {
  if (heads.empty()) return;
  shape.kv_heads = static_cast<int>(heads[0].count);
  shape.head_dim = static_cast<int>(heads[0].dims);
  const bool alike = std::ranges::all_of(heads, [&](const KvHeads& h) { return h == heads[0]; });
  shape.layer_heads = alike ? std::vector<KvHeads>() : std::move(heads);
}

}  // namespace

KvShape kv_shape(const ModelConfig& config, const RunLimits& limits) {
  KvShape shape;
  shape.layers = std::ssize(config.cache_layers());
  set_heads(kv_heads_of(config, place_of(config, 0, 1).own()), shape);
  shape.key_type = limits.key_type;
  shape.value_type = limits.value_type;
  shape.positions = limits.context;
  shape.sequences = limits.sequences;
  shape.batch_tokens = limits.batch_tokens;
  set_windows(config, shape);
  shape.residual = kv_residual(limits);
  if (limits.kv_layers.empty()) return shape;
  for (const std::int64_t layer : config.cache_layers()) {
    shape.layer_key_types.push_back(layer_type(limits, layer, KvPart::keys));
    shape.layer_value_types.push_back(layer_type(limits, layer, KvPart::values));
  }
  return shape;
}

KvShape kv_shape(const ModelConfig& config, const Weights& weights, const Layout& layout,
                 const RunLimits& limits) {
  KvShape shape = kv_shape(config, limits);
  std::vector<KvType> keys;
  const std::int64_t layers = std::ssize(config.cache_layers());
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    keys.push_back(shape.type(layer, KvPart::keys));
    // This call throws Error if the device does not support the type.
    const KvHeads heads = shape.heads(layer);
    (void)layout.page_bytes(KvPart::keys, keys.back(), static_cast<int>(heads.count),
                            static_cast<int>(heads.dims));
  }
  shape.key_centre_check = key_centre_check(weights, keys);
  widen_keys(config, weights, keys);
  const bool all_alike = std::ranges::all_of(keys, [&](KvType k) { return k == shape.key_type; });
  shape.layer_key_types = all_alike ? std::vector<KvType>() : std::move(keys);
  return shape;
}

KvShape rank_kv_shape(const ModelConfig& config, const Weights& weights, const Layout& layout,
                      const RunLimits& limits, const RankPlace& place) {
  KvShape shape = kv_shape(config, weights, layout, limits);
  set_heads(kv_heads_of(config, place.own()), shape);
  return shape;
}

std::unique_ptr<FixedStates> make_fixed_states(DeviceMemory& memory, const ModelConfig& config,
                                               const RunLimits& limits, const RankShare& share) {
  if (config.state_layers().empty()) return nullptr;
  const std::size_t each = fixed_state_bytes(config, share);
  const std::int64_t count = 2 * std::int64_t{limits.sequences} + limits.kept_states;
  return std::make_unique<FixedStates>(memory, each, count, limits.sequences);
}

ForwardLimits forward_limits(const RunLimits& limits) {
  const std::int64_t context =
      limits.sequence_context > 0 ? limits.sequence_context : limits.context / limits.sequences;
  return {limits.batch_tokens, limits.output_tokens, context};
}

MemoryPlanner::MemoryPlanner(const Model& model, const Layout& layout)
    : MemoryPlanner(model, layout, place_of(model.config(), 0, 1)) {}

MemoryPlanner::MemoryPlanner(const Model& model, const Layout& layout, const RankPlace& place)
    : MemoryPlanner([&](std::string_view name) { return model.file().find(name); },
                    model.file().name(), model.config(), model.file().memory_bytes(), layout,
                    place) {}

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
  return plan_memory(file_bytes_, config_, weights_, layout_, resolved, place_);
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
