// Runs a comparison: a list of steps, each of which is measured or reused from the stored results
// of an earlier run. Returns all results as one JSON value.
#pragma once

#include "base/json.h"
#include "compare/compare_job.h"

namespace leq {

// Result: {"model", "machine", "text", "options", "base", "candidates": [{"spec", "file",
// "quality", "speed", "layers"}], ...}. Throws Error like Workbench, and of kind interrupted if
// job.stop returns true: finished steps are stored, so that the next run continues after them.
Json run_comparison(const CompareJob& job);

}  // namespace leq
