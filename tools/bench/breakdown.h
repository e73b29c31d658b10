// The rows of leq-bench --breakdown: the parts of a step, followed by the step itself.
#pragma once

#include "base/table.h"
#include "tools/bench/parts/speed.h"

namespace leq {

// Adds a row for each part, then `all parts`, `step` and `step, untimed`; each begins with the
// cells of `test` (model, backend, test). Milliseconds and bytes are per step.
void add_breakdown(const Row& test, const Breakdown& breakdown, bool as_text, Table& table);

}  // namespace leq
