// Options of leq-compare, and the comparison that they describe.
#pragma once

#include "compare/compare_job.h"
#include "tools/common/options.h"

namespace leq {

ToolSpec compare_tool();
CompareJob compare_job(const Options& options);

}  // namespace leq
