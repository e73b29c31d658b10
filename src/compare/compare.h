// Runs a comparison: a list of steps, each of which is measured or reused from the results of an
// earlier run, and all results as one JSON value.
#pragma once

#include "base/json.h"
#include "compare/compare_job.h"

namespace leq {

// {"model", "machine", "text", "options", "base", "candidates": [{"spec", "file", "quality",
// "speed", "layers"}], ...}. Throws Error as Workbench does, and of kind interrupted where job.stop
// is true: finished steps are kept, and the next run continues after them.
Json run_comparison(const CompareJob& job);

}  // namespace leq
