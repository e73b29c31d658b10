// Time of a step by class of operation: the classes of the paper's latency table, and also
// attention and sampling.
#pragma once

#include <functional>

#include "backend/step_parts.h"
#include "eval/bench.h"

namespace leq {

// Means over the steps of a test. A step is a prompt, or one generated token of each sequence.
struct Breakdown {
  std::int64_t steps = 0;
  StepTimes times;           // times of one step, with operations and bytes
  double step_seconds = 0;   // wall time of the steps in `times`, measured separately
  double plain_seconds = 0;  // wall time of a step without instrumentation
};

// Half of the `runs` (at least one) run without instrumentation and alternate with runs that time
// the parts. The median run of each kind is used. Generated tokens are sampled from the logits as
// in normal use. `test` must be either prompt or generation.
Breakdown break_down(Session& session, const BenchTest& test, int runs,
                     const std::function<void(int)>& after_run);

}  // namespace leq
