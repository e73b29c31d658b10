// How fast a candidate runs and what memory it takes: by the functions of leq-bench.
#pragma once

#include "base/json.h"
#include "compare/workbench.h"

namespace leq {

// prompt and generation (tests of CompareSizes): tokens per second as {"tps", "min", "max"},
// medians of the runs; parts of a step in milliseconds {"prompt_parts", "generation_parts"}; bytes
// of the plan for one window of the text: weight_bytes, kv_bytes, scratch_bytes, memory_bytes; and
// long_memory_bytes for long_context positions (8,192, or what the model has).
Json measure_speed(Workbench& bench, const Candidate& candidate);

// Tokens per second of generation over so many sequences at once, for each number: [{"sequences",
// "tps", "min", "max"}].
Json measure_batches(Workbench& bench, const Candidate& candidate);

// Prompt and generation with one rank and with several (threads of this process that divide the
// cores): [{"ranks", "prompt", "generation"}]. Of one rank alone where the model cannot be divided.
Json measure_ranks(Workbench& bench, const Candidate& candidate);

}  // namespace leq
