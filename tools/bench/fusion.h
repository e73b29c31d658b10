// Measures fused quantization: codes written by the norm that computes the values, compared with a
// separate pass after the norm.
#pragma once

#include <string>

#include "base/table.h"

namespace leq {

// The first norm of a .leq file over 256 rows, in the input format of its linears: `runs` rows of
// {"rows", "columns", "fused_ms", "apart_ms"}, each of two alternating passes, so that other load
// on the machine affects both. Throws Error if the inputs are no codes of their own rows.
Table bench_fusion(const std::string& path, int threads, int runs);

}  // namespace leq
