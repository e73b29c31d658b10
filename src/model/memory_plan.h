// Memory is planned, not discovered: the exact bytes of weights, KV cache and scratch from the
// header alone, by building what a session builds on memory that only counts. A test compares them
// with the engine's own peak.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backend/layout.h"
#include "cache/fixed_states.h"
#include "cache/kv_cache.h"
#include "model/model_config.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace leq {

inline constexpr std::int64_t kDefaultKeptStates = 8;
inline constexpr std::int64_t kMostKeptStates = 4096;

struct RunLimits {
  std::int64_t context = 0;  // positions in all sequences together; 0 = min(model, 8192)
  int sequences = 1;
  // Positions in one sequence; 0 = an equal share. More than a share: sequences take what they
  // need.
  std::int64_t sequence_context = 0;
  std::int64_t batch_tokens = 512;  // in one step
  std::int64_t output_tokens = 1;
  KvType key_type = kUsualKv;
  KvType value_type = kUsualKv;
  std::vector<KvLayerTypes> kv_layers = {};  // that have others; the last that names a layer counts
  // Positions that stay in f16 beside the codes of types that make whole blocks; nullopt: as the
  // types have it.
  std::optional<int> kv_sinks = {}, kv_recent = {};
  // Of models with fixed states (Gated DeltaNet): states that are kept beside those of the
  // sequences, so that a text which begins like an earlier one is not fed again from its start.
  std::int64_t kept_states = kDefaultKeptStates;
};

struct MemoryPlan {
  std::uint64_t weight_bytes = 0;  // the file, mapped or read; on a GPU its copy there
  std::uint64_t kv_bytes = 0;
  std::uint64_t state_bytes = 0;  // fixed states
  std::uint64_t scratch_bytes = 0;
  std::uint64_t total() const { return weight_bytes + kv_bytes + state_bytes + scratch_bytes; }
};

// Default KV type of a model: f32 for files of type f32, else f16.
KvType default_kv_type(std::string_view model_type);

// Fills in the context (default min(model, 8192)) and checks all limits against the model. Throws
// Error naming the setting, its value and the range.
RunLimits resolve_limits(RunLimits limits, const ModelConfig& config);

// The KV types of a layer, and the positions that stay in f16 beside codes.
KvType layer_type(const RunLimits& limits, std::int64_t layer, KvPart part);
KvResidual kv_residual(const RunLimits& limits);

// Sizes of the cache and of a forward pass under resolved limits.
KvShape kv_shape(const ModelConfig& config, const RunLimits& limits);
// With wider keys in layers that need them (kv_layers.h). Throws Error for a type of the cache that
// the device does not run.
KvShape kv_shape(const ModelConfig& config, const Weights& weights, const Layout& layout,
                 const RunLimits& limits);
// Of the pages of one rank's kv heads.
KvShape rank_kv_shape(const ModelConfig& config, const Weights& weights, const Layout& layout,
                      const RunLimits& limits, const RankPlace& place);
ForwardLimits forward_limits(const RunLimits& limits);
// The states of all sequences, two of each while a step runs, and those that are kept, of one
// rank's heads; null where no layer has one.
std::unique_ptr<FixedStates> make_fixed_states(DeviceMemory& memory, const ModelConfig& config,
                                               const RunLimits& limits, const RankShare& share);

// For resolved limits. One sequence may hold context / sequences positions. `weights` as bound on
// the device's memory, or on a CountingMemory of `layout`.
MemoryPlan plan_memory(std::uint64_t file_bytes, const ModelConfig& config, const Weights& weights,
                       const Layout& layout, const RunLimits& limits);
// The same for one of several ranks, of its weights.
MemoryPlan plan_rank_memory(std::uint64_t file_bytes, const ModelConfig& config,
                            const Weights& weights, const Layout& layout, const RunLimits& limits,
                            const RankPlace& place);

}  // namespace leq
