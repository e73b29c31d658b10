// Memory needed to run a model, from its file's header alone.
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
  std::vector<MemoryPlan> ranks;                 // each rank's, if there are several
  std::optional<std::uint64_t> available_bytes;  // nullopt where it is unknown
  // Most positions (of all sequences, up to the model's own) that fit; 0 = not even one page.
  std::int64_t largest_context = 0;

  bool on_gpu() const { return device != "cpu"; }
};

// The device to plan for. A GPU, or a build for it, need not be present: with a cap its memory
// layout is sufficient.
struct FitDevice {
  std::string device = "cpu";
  int threads = 0;
  GpuOptions gpu = {};
  int ranks = 1;  // they share the threads
};

// Throws Error where the limits do not fit the model, and where a device without a cap is absent.
// `mtp`: the model's head of multi-token prediction drafts, on rank 0.
FitReport plan_fit(const Model& model, const RunLimits& limits, const FitDevice& device, bool mtp);
std::string fit_text(const FitReport& report);
Json fit_json(const FitReport& report);

}  // namespace leq
