// The memory that running a model takes, from the header of its file alone.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "model/open_model.h"

namespace leq {

struct FitReport {
  RunLimits limits;  // resolved
  int threads = 0;
  MemoryPlan plan;
  std::optional<std::uint64_t> available_bytes;  // free now; nullopt where the system does not say
  // Most positions (of all sequences, up to the model's own) that fit there; 0 = not even one page.
  std::int64_t largest_context = 0;
};

// Throws Error where the limits do not fit the model.
FitReport plan_fit(const Model& model, const RunLimits& limits, int threads);
std::string fit_text(const FitReport& report);
nlohmann::json fit_json(const FitReport& report);

}  // namespace leq
