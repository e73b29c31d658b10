// Compares memory plans with the available memory and finds the largest context that fits. For
// devices with their own memory it reduces the context to fit, or throws an error that shows the
// plan, before anything is loaded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "backend/layout.h"
#include "model/memory_plan.h"
#include "model/open_model.h"

namespace leq {

// A text such as "weights 3.52 GB + KV cache 1.07 GB + scratch 160 MB = 4.75 GB".
std::string plan_text(const MemoryPlan& plan);

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

// Fits the limits of a model to a backend's memory. If the backend uses the host's memory, only
// calls resolve_limits.
FittedLimits fit_limits(const RunLimits& wanted, const Model& model, Backend& backend);
// Like fit_limits above, for the rank at `place`.
FittedLimits fit_limits(const RunLimits& wanted, const Model& model, Backend& backend,
                        const RankPlace& place);
// Like fit_limits above, for ranks that are threads: returns limits that fit on every rank.
FittedLimits fit_limits(const RunLimits& wanted, const Model& model,
                        std::span<Backend* const> ranks);

}  // namespace leq
