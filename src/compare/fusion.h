// Measures the paper's fused quantization: codes written by the kernel that computes the values,
// compared with a separate pass after that kernel.
#pragma once

#include "base/json.h"
#include "compare/workbench.h"

namespace leq {

// The candidate's first norm over 256 rows, in the input format of its linears: {"fused_ms",
// "apart_ms", "ratio"}, medians of alternating passes; "ratio_low" and "ratio_high" (95 %,
// bootstrap, of the middle half of the ratios); "rows", "columns". Throws Error if the inputs are
// f32 or have a moving scale.
Json measure_fusion(Workbench& bench, const Candidate& candidate);

}  // namespace leq
