// The rows of leq-bench --breakdown: the parts of a step, followed by the step itself.
#pragma once

#include "eval/breakdown.h"
#include "report/table.h"

namespace leq {

// Adds a row for each part, then `all parts`, `step` and `step, untimed`; each begins with the
// cells of `test` (model, backend, test). Milliseconds and bytes are per step.
void add_breakdown(const Row& test, const Breakdown& breakdown, bool for_people, Table& table);

}  // namespace leq
