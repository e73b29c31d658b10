// The rows of leq-bench --breakdown: the parts of a step, then the step itself.
#pragma once

#include "eval/breakdown.h"
#include "report/table.h"

namespace leq {

// A row per part, then `all parts`, `step` and `step, untimed`, each beginning with the cells of
// `test` (model, backend, test). Milliseconds and bytes are those of one step.
void add_breakdown(const Row& test, const Breakdown& breakdown, bool as_text, Table& table);

}  // namespace leq
