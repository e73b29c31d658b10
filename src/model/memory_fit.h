// Plans against the memory that there is: the largest context that fits, and for devices with
// memory of their own a context cut to it or an error that shows the plan, before anything is
// loaded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "backend/counting_memory.h"
#include "model/memory_plan.h"
#include "model/open_model.h"

namespace leq {

// "weights 3.52 GB + KV cache 1.07 GB + scratch 160 MB = 4.75 GB"
std::string plan_text(const MemoryPlan& plan);

struct FittedLimits {
  RunLimits limits;  // resolved
  std::string note;  // one line for people where the context was cut, else empty; for spelled()
};

// Makes plans of one model on one device, which need not be here; the model, what `find` finds and
// the layout must outlive it. Weights are counted once.
class MemoryPlanner {
 public:
  MemoryPlanner(const Model& model, const Layout& layout);
  // For one of several ranks.
  MemoryPlanner(const Model& model, const Layout& layout, const RankPlace& place);
  // Weights from elsewhere (synthetic ones).
  MemoryPlanner(const TensorFinder& find, std::string source, const ModelConfig& config,
                std::uint64_t weight_bytes, const Layout& layout, const RankPlace& place);

  MemoryPlan plan(const RunLimits& resolved) const;
  // Most positions of all sequences, in whole pages and up to `most` for each sequence, whose plan
  // takes at most `bytes`; 0 = not even one page.
  std::int64_t largest_context(RunLimits limits, std::int64_t most, std::uint64_t bytes) const;
  // Resolves the limits. Where the plan does not fit `memory`, the default context is cut to what
  // fits; a context that was asked for is refused: Error with the plan, the room of `device`, the
  // largest context that fits and what to try.
  FittedLimits fit(const RunLimits& wanted, const DeviceMemoryInfo& memory,
                   std::string_view device) const;

 private:
  std::string source_;
  const ModelConfig& config_;
  const Layout& layout_;
  std::uint64_t file_bytes_;
  RankPlace place_;
  CountingMemory memory_;  // of the weights
  Weights weights_;
};

// The same for a model on a backend; where the backend has no memory of its own, as resolve_limits
// has it.
FittedLimits fit_limits(const RunLimits& wanted, const Model& model, Backend& backend);
// For the rank at `place`.
FittedLimits fit_limits(const RunLimits& wanted, const Model& model, Backend& backend,
                        const RankPlace& place);
// For ranks of this process: the limits that every one of them can have.
FittedLimits fit_limits(const RunLimits& wanted, const Model& model,
                        std::span<Backend* const> ranks);

}  // namespace leq
