// The memory that running a model takes, from the header of its file alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/gpu_options.h"
#include "base/json.h"
#include "model/open_model.h"

namespace leq {

struct FitReport {
  std::string device = "cpu";  // as typed
  RunLimits limits;            // resolved
  int threads = 0;
  MemoryPlan plan;                               // of all ranks together: the weights once
  std::vector<MemoryPlan> ranks;                 // each rank's, where there are several
  std::optional<std::uint64_t> available_bytes;  // for it; nullopt where the system does not say
  // Most positions (of all sequences, up to the model's own) that fit there; 0 = not even one page.
  std::int64_t largest_context = 0;

  bool on_gpu() const { return device != "cpu"; }
};

// Where to plan for. A GPU need not be here, nor a build for it: with a cap the layout of its
// memory says all.
struct FitDevice {
  std::string device = "cpu";
  int threads = 0;
  GpuOptions gpu = {};
  int ranks = 1;  // that share the threads
};

// Throws Error where the limits do not fit the model, and where a device without a cap is not here.
// `mtp`: the model's head of multi-token prediction drafts, on the first rank.
FitReport plan_fit(const Model& model, const RunLimits& limits, const FitDevice& device, bool mtp);
std::string fit_text(const FitReport& report);
Json fit_json(const FitReport& report);

}  // namespace leq
