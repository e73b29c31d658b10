#include "compare/speed.h"

#include "backend/steps.h"
#include "base/bytes.h"
#include "cache/kv_pages.h"
#include "model/memory_fit.h"
#include "model/ranks.h"
#include "runtime/runtime.h"
#include "tools/bench/parts/speed.h"

namespace leq {
namespace {

constexpr std::int64_t kLongContext = 8192;  // as in the paper's Table 3

// The default cache of a session, or the candidate's own if it is a quantized cache.
KvType speed_cache(const Candidate& candidate, const Model& model) {
  return candidate.cache == kExactKv ? default_kv_type(model.type()) : candidate.cache;
}

RunLimits speed_limits(const Candidate& candidate, const Model& model, const BenchTest& test) {
  const std::int64_t context = model.config().context;
  RunLimits limits;
  limits.sequences = test.sequences;
  limits.context = std::min(round_up(test.positions(), kPageTokens), context) * test.sequences;
  limits.batch_tokens = std::max<std::int64_t>(limits.batch_tokens, test.sequences);
  limits.output_tokens = test.sequences;
  limits.key_type = limits.value_type = speed_cache(candidate, model);
  return resolve_limits(limits, model.config());
}

Json speed_json(const BenchNumbers& numbers) {
  return {{"tps", numbers.tps}, {"min", numbers.tps_min}, {"max", numbers.tps_max}};
}

Json timed(Workbench& bench, Session& session, const BenchTest& test) {
  const auto no_limits = [] { return MachineLimits{}; };
  const auto runs = time_bench_test(session, test, bench.job().sizes.bench_runs, no_limits,
                                    [&](int) { bench.require_not_stopped(); });
  return speed_json(bench_numbers(test, bench_work(session, test), runs));
}

Json parts_json(Workbench& bench, Session& session, const BenchTest& test) {
  const Breakdown breakdown = break_down(session, test, bench.job().sizes.bench_runs,
                                         [&](int) { bench.require_not_stopped(); });
  Json json = {{"step_ms", 1e3 * breakdown.step_seconds}};
  for (std::size_t i = 0; i < kStepPartNames.size(); ++i) {
    json[kStepPartNames[i]] = 1e3 * breakdown.times.parts[i].seconds;
  }
  return json;
}

Json plan_json(Workbench& bench, const Candidate& candidate, const Model& model) {
  const MemoryPlanner planner(model, bench.workers().backend->layout());
  const auto planned = [&](std::int64_t context) {
    RunLimits limits;
    limits.context = context;
    limits.key_type = limits.value_type = speed_cache(candidate, model);
    return planner.plan(resolve_limits(limits, model.config()));
  };
  const std::int64_t longest = std::min(kLongContext, model.config().context);
  const MemoryPlan plan = planned(bench.windows().settings.window);
  return {{"weight_bytes", plan.weight_bytes},
          {"kv_bytes", plan.kv_bytes},
          {"scratch_bytes", plan.scratch_bytes},
          {"memory_bytes", plan.total()},
          {"long_context", longest},
          {"long_memory_bytes", planned(longest).total()}};
}

BenchTest prompt_test(const Workbench& bench, std::int64_t context) {
  return {.prompt = std::min(bench.job().sizes.prompt, context / 2)};
}

BenchTest generation_test(const Workbench& bench, std::int64_t context) {
  return {.generated = std::min(bench.job().sizes.generated, context / 2)};
}

Json ranks_row(Workbench& bench, const Model& model, const Candidate& candidate, int ranks) {
  Json row = {{"ranks", ranks}};
  const int threads = bench.workers().pool.threads();
  const std::int64_t context = model.config().context;
  const std::pair<const char*, BenchTest> tests[] = {
      {"prompt", prompt_test(bench, context)}, {"generation", generation_test(bench, context)}};
  for (const auto& [name, test] : tests) {
    const RunLimits limits = speed_limits(candidate, model, test);
    const auto backend =
        make_backend({.device = "cpu", .threads = threads_of_rank(threads, 0, ranks)});
    std::unique_ptr<ThreadFollowers> followers;
    if (ranks > 1) {
      followers = std::make_unique<ThreadFollowers>(
          model, follower_backends({.device = "cpu", .threads = threads}, ranks, true), limits,
          thread_rank_options(threads, ranks));
    }
    Session session(model, *backend, limits, followers ? followers->leader() : one_rank());
    row[name] = timed(bench, session, test);
  }
  return row;
}

}  // namespace

Json measure_speed(Workbench& bench, const Candidate& candidate) {
  const std::unique_ptr<Model> model = bench.open(candidate);
  const std::int64_t context = model->config().context;
  Json json = plan_json(bench, candidate, *model);
  const std::pair<std::string, BenchTest> tests[] = {
      {"prompt", prompt_test(bench, context)}, {"generation", generation_test(bench, context)}};
  for (const auto& [name, test] : tests) {
    Session session(*model, *bench.workers().backend, speed_limits(candidate, *model, test));
    json[name] = timed(bench, session, test);
    json[name]["test"] = bench_test_name(test);
    json[name + "_parts"] = parts_json(bench, session, test);
  }
  return json;
}

Json measure_batches(Workbench& bench, const Candidate& candidate) {
  const std::unique_ptr<Model> model = bench.open(candidate);
  Json rows = Json::array();
  for (const std::int64_t sequences : bench.job().sizes.sequences) {
    BenchTest test = generation_test(bench, model->config().context);
    test.sequences = static_cast<int>(sequences);
    Session session(*model, *bench.workers().backend, speed_limits(candidate, *model, test));
    Json row = timed(bench, session, test);
    row["sequences"] = sequences;
    rows.push_back(row);
  }
  return rows;
}

Json measure_ranks(Workbench& bench, const Candidate& candidate) {
  const std::unique_ptr<Model> model = bench.open(candidate);
  Json rows = Json::array();
  const int most =
      std::min<int>(bench.workers().pool.threads(), static_cast<int>(model->config().kv_heads));
  for (int ranks = 1; ranks <= std::max(1, most); ranks *= 2) {
    rows.push_back(ranks_row(bench, *model, candidate, ranks));
  }
  return rows;
}

}  // namespace leq
