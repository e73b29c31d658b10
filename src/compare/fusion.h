// The paper's fused quantization tried: codes written by the operation that makes the numbers, and
// by a pass of their own after it.
#pragma once

#include "base/json.h"
#include "compare/workbench.h"

namespace leq {

// The first norm of the candidate over 256 rows, as its linears want their inputs: {"fused_ms",
// "apart_ms", "ratio"}, medians of passes in turn, "ratio_low" and "ratio_high" (95 %, bootstrap,
// of the middle half of the ratios), "rows", "columns". Throws Error where its inputs are f32 or
// have a moving scale.
Json measure_fusion(Workbench& bench, const Candidate& candidate);

}  // namespace leq
