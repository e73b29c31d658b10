// leq-bench --tp-plan: what ranks would do on GPUs that are only described.
#pragma once

#include <string>

#include "report/table.h"
#include "tools/common/options.h"

namespace leq {

// A row for each model, number of sequences and number of ranks. Throws Error where an option of
// the sweep does not go with a plan.
Table rank_plan_table(const Options& options);

// What it assumes, as a line.
std::string rank_machine_text();

}  // namespace leq
