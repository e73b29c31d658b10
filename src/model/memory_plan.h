// Memory plans: the exact bytes of weights, KV cache and scratch, computed from the file's header
// without allocating. A plan builds the objects of a session on a memory that only counts bytes; a
// test compares the result with the real peak. For devices with their own memory, the context is
// reduced to fit, or an error shows the plan, before anything is loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "backend/layout.h"
#include "cache/kv_cache.h"
#include "cache/sequence_state.h"
#include "model/model_config.h"
#include "model/open_model.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace leq {

// Fixed states that are kept by default: as many as these bytes hold, within these numbers.
inline constexpr std::int64_t kMinDefaultStates = 8, kMaxDefaultStates = 64;
inline constexpr std::int64_t kKeptStateBytes = 512'000'000;
inline constexpr std::int64_t kMaxKeptStates = 4096;

struct RunLimits {
  // Total positions of all sequences; 0 = min(model, 8192), for each sequence if they have shares.
  std::int64_t context = 0;
  int sequences = 1;
  // Limit on the positions of one sequence; 0 = an equal share of `context`. With more than a
  // share, sequences compete for the positions.
  std::int64_t sequence_context = 0;
  std::int64_t batch_tokens = 512;  // rows in one step
  std::int64_t output_tokens = 1;
  KvType key_type = kUsualKv;
  KvType value_type = kUsualKv;
  std::vector<KvLayerTypes> kv_layers = {};  // layers with their own types; later entries win
  // Number of first and of recent positions that stay in f16 beside codes, for types that quantize
  // whole blocks; nullopt: the defaults of the type.
  std::optional<int> kv_sinks = {}, kv_recent = {};
  // For models with fixed states (Gated DeltaNet): number of states kept beside those of running
  // sequences, so that texts with a common beginning need not be computed from the start; -1: the
  // default.
  std::int64_t kept_states = -1;
};

struct MemoryPlan {
  std::uint64_t weight_bytes = 0;  // LeqReader::memory_bytes; on a GPU the copy of the weights
  std::uint64_t kv_bytes = 0;
  std::uint64_t state_bytes = 0;  // fixed states of Gated DeltaNet
  std::uint64_t scratch_bytes = 0;
  std::uint64_t total() const { return weight_bytes + kv_bytes + state_bytes + scratch_bytes; }
};

// Default KV type of a model: f32 if the file has type f32, otherwise f16.
KvType default_kv_type(std::string_view model_type);

// The longest context that a user can request for a model; RoPE scalings allow more than its own.
std::int64_t longest_context(const ModelConfig& config);

// Sets a missing context to the default and checks all limits against the model. Throws Error
// naming the setting, its value and the valid range.
RunLimits resolve_limits(RunLimits limits, const ModelConfig& config);

// Type of keys or values in one layer, and the positions that stay in f16 beside codes.
KvType layer_type(const RunLimits& limits, std::int64_t layer, KvPart part);
KvResidual kv_residual(const RunLimits& limits);

// Sizes of the KV cache and of a forward pass under resolved limits.
KvShape kv_shape(const ModelConfig& config, const RunLimits& limits);
// Like kv_shape above, but with wider key types in layers that need them (kv_layers.h). Throws
// Error if the device does not support one of the types.
KvShape kv_shape(const ModelConfig& config, const Weights& weights, const Layout& layout,
                 const RunLimits& limits);
// Like kv_shape, with only the KV heads of one rank.
KvShape rank_kv_shape(const ModelConfig& config, const Weights& weights, const Layout& layout,
                      const RunLimits& limits, const RankPlace& place);
ForwardLimits forward_limits(const RunLimits& limits);
// Allocates one rank's heads of the fixed states: two per sequence, because a step reads one and
// writes the other, and `kept_states` more. Returns null if no layer has a fixed state.
std::unique_ptr<FixedStates> make_fixed_states(DeviceMemory& memory, const ModelConfig& config,
                                               const RunLimits& limits, const RankShare& share);

// Plans the memory of the rank at `place` for resolved limits, with context / sequences positions
// per sequence. `weights` are its share, bound on the device's memory or on a CountingMemory of
// `layout`.
MemoryPlan plan_memory(std::uint64_t file_bytes, const ModelConfig& config, const Weights& weights,
                       const Layout& layout, const RunLimits& limits, const RankPlace& place);

struct FittedLimits {
  RunLimits limits;  // with all defaults filled in
  std::string note;  // one line for the user if the context was reduced; for spelled()
};

// Makes memory plans of one model for one device, which need not be present. The model, the tensors
// that `find` returns, and the layout must outlive the object. Weights are counted only once.
class MemoryPlanner {
 public:
  MemoryPlanner(const Model& model, const Layout& layout);
  // A planner for one of several ranks.
  MemoryPlanner(const Model& model, const Layout& layout, const RankPlace& place);
  // A planner for weights that are not in a .leq file (synthetic ones).
  MemoryPlanner(const TensorFinder& find, std::string source, const ModelConfig& config,
                std::uint64_t weight_bytes, const Layout& layout, const RankPlace& place);

  MemoryPlan plan(const RunLimits& resolved) const;
  // The largest context of all sequences together, in whole pages and at most `most` per sequence,
  // for which the plan needs at most `bytes`; 0 if not even one page fits.
  std::int64_t largest_context(RunLimits limits, std::int64_t most, std::uint64_t bytes) const;
  // Resolves the limits. If the plan does not fit `memory`, a default context is reduced until the
  // plan fits. A context that was requested is not reduced: the Error then states the plan, the
  // memory of `device`, the largest context that fits and what to try.
  FittedLimits fit(const RunLimits& wanted, const DeviceMemoryInfo& memory,
                   std::string_view device) const;

 private:
  std::string source_;
  const ModelConfig& config_;
  const Layout& layout_;
  std::uint64_t file_bytes_;
  RankPlace place_;
  CountingMemory memory_;  // memory on which weights were counted
  Weights weights_;
};

// Fits the limits of a model to a backend's memory, for the rank at `place`. If the backend uses
// the host's memory, only calls resolve_limits.
FittedLimits fit_limits(const RunLimits& wanted, const Model& model, Backend& backend,
                        const RankPlace& place);
// Like fit_limits above, for ranks that are threads: returns limits that fit on every rank.
FittedLimits fit_limits(const RunLimits& wanted, const Model& model,
                        std::span<Backend* const> ranks);

}  // namespace leq
