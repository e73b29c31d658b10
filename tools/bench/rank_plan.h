// leq-bench --tp-plan: a plan of ranks on GPUs that are only described.
#pragma once

#include <string>

#include "report/table.h"
#include "tools/common/options.h"

namespace leq {

// A row for each model, number of sequences and number of ranks. Throws Error where an option of
// the sweep is not supported by a plan.
Table rank_plan_table(const Options& options);

// The plan's assumptions in one line.
std::string rank_machine_text();

}  // namespace leq
