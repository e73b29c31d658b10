// Computes the memory needed to run a model from its file's header.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/json.h"
#include "model/memory_plan.h"
#include "model/open_model.h"

namespace leq {

struct FitReport {
  std::string device = "cpu";  // the user's spelling
  RunLimits limits;            // resolved
  int threads = 0;
  MemoryPlan plan;                               // sum over all ranks, counting weights once
  std::vector<MemoryPlan> ranks;                 // for each rank, if there are several
  std::optional<std::uint64_t> available_bytes;  // nullopt if unknown
  // The largest number of positions (of all sequences, up to the model's own) that fits; 0 = none.
  std::int64_t largest_context = 0;

  bool on_gpu() const { return device != "cpu"; }
};

// The device to plan for. A GPU, or a build for it, need not be present: if a cap is given, only
// its memory layout is needed.
struct FitDevice {
  std::string device = "cpu";
  int threads = 0;
  GpuOptions gpu = {};
  int ranks = 1;  // the ranks share the threads
};

// Throws Error if the limits do not fit the model, or if a device without a cap is absent. `mtp`:
// rank 0 also uses the model's multi-token prediction head.
FitReport plan_fit(const Model& model, const RunLimits& limits, const FitDevice& device, bool mtp);
std::string fit_text(const FitReport& report);
Json fit_json(const FitReport& report);

}  // namespace leq
