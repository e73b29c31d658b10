// The tools, which are one program, leq: `leq run` and `leq-run` (a link to it) are run_tool(kRun).
#pragma once

#include "tools/common/options.h"

namespace leq {

extern const Tool kBench, kInspect, kPerplexity, kQuantize, kRun, kServer;

}  // namespace leq
