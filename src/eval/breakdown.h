// What a step's time is spent on: the classes of the paper's latency table, and attention and
// sampling beside them.
#pragma once

#include <functional>

#include "backend/step_parts.h"
#include "eval/bench.h"

namespace leq {

// Means over the steps of a test: a prompt is one step, a generated token (of each sequence) one.
struct Breakdown {
  std::int64_t steps = 0;
  StepTimes times;           // of one step; operations and bytes too
  double step_seconds = 0;   // around the same steps, by a clock of its own
  double plain_seconds = 0;  // of a step that is run without being looked at
};

// Half of the `runs` (at least one) run plainly, the others look at the parts, in turn; the median
// run of each counts. Generated tokens are sampled from the logits, as a user's are. `test`: either
// prompt or generation.
Breakdown break_down(Session& session, const BenchTest& test, int runs,
                     const std::function<void(int)>& after_run);

}  // namespace leq
