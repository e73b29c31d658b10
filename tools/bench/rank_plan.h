// leq-bench --tp-plan: plans ranks on GPUs from a description of the GPUs.
#pragma once

#include <string>

#include "base/table.h"
#include "tools/common/options.h"

namespace leq {

// Returns one row for each model, number of sequences and number of ranks. Throws Error if a plan
// does not support an option of the sweep.
Table rank_plan_table(const Options& options);

// Returns the plan's assumptions in one line.
std::string rank_machine_text();

}  // namespace leq
