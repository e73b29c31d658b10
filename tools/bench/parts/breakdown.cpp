#include "eval/breakdown.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "eval/bench_steps.h"

namespace leq {
namespace {

using Clock = std::chrono::steady_clock;

struct Run {
  double seconds = 0;
  StepTimes times;
};

Run run_once(BenchSteps& steps, bool looked_at) {
  Backend& backend = steps.backend();
  steps.rewind();
  Run run;
  const auto start = Clock::now();
  if (looked_at) backend.start_times();
  while (steps.next()) {
  }
  if (looked_at) run.times = backend.stop_times();
  run.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return run;
}

const Run& median_run(std::vector<Run>& runs) {
  const auto middle = runs.begin() + std::ssize(runs) / 2;
  std::nth_element(runs.begin(), middle, runs.end(),
                   [](const Run& a, const Run& b) { return a.seconds < b.seconds; });
  return *middle;
}

}  // namespace

Breakdown break_down(Session& session, const BenchTest& test, int runs,
                     const std::function<void(int)>& after_run) {
  require(test.prompt == 0 || test.generated == 0, Setting{"breakdown"},
          ": expected a prompt or generation, found ", bench_test_name(test), "; leave out ",
          Setting{"prompt_and_generation"});
  BenchSteps steps(session, test, true);
  run_once(steps, false);  // warm-up
  std::vector<Run> plain, parts;
  for (int run = 0; run < runs; ++run) {
    plain.push_back(run_once(steps, false));
    parts.push_back(run_once(steps, true));
    after_run(run + 1);
  }
  Breakdown found;
  found.steps = steps.count();
  const auto each = 1.0 / static_cast<double>(found.steps);
  const Run& seen = median_run(parts);
  found.times = seen.times;
  for (PartTimes& part : found.times.parts) {
    part.seconds *= each;
    part.bytes /= static_cast<std::uint64_t>(found.steps);
    part.operations /= found.steps;
  }
  found.step_seconds = seen.seconds * each;
  found.plain_seconds = median_run(plain).seconds * each;
  return found;
}

}  // namespace leq
