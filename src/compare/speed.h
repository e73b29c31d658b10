// Measures a candidate's speed and memory, with the functions of leq-bench.
#pragma once

#include "base/json.h"
#include "compare/workbench.h"

namespace leq {

// prompt and generation (tests of CompareSizes): tokens per second as {"tps", "min", "max"},
// medians of the runs; parts of a step in milliseconds {"prompt_parts", "generation_parts"}; bytes
// planned for one window of the text: weight_bytes, kv_bytes, scratch_bytes, memory_bytes; and
// long_memory_bytes for long_context positions (8,192, or the model's maximum).
Json measure_speed(Workbench& bench, const Candidate& candidate);

// Generated tokens per second with several concurrent sequences, for each batch size:
// [{"sequences", "tps", "min", "max"}].
Json measure_batches(Workbench& bench, const Candidate& candidate);

// Prompt and generation with one rank and with several (threads of this process that share the
// cores): [{"ranks", "prompt", "generation"}]. One rank only if the model cannot be partitioned.
Json measure_ranks(Workbench& bench, const Candidate& candidate);

}  // namespace leq
