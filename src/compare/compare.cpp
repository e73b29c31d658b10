#include "compare/compare.h"

#include <algorithm>
#include <set>

#include "base/cpu_features.h"
#include "base/error.h"
#include "base/version.h"
#include "compare/choices.h"
#include "compare/curves.h"
#include "compare/fusion.h"
#include "compare/inside.h"
#include "compare/layer_errors.h"
#include "compare/quality.h"
#include "compare/speed.h"

namespace leq {
namespace {

constexpr std::array<std::string_view, 4> kSpeedGroups = {"speed", "batches", "ranks", "fusion"};

// One measurement, whose result is stored in results[group][name].
struct Step {
  std::string group;  // "quality"
  Candidate candidate;
  Json identity;  // everything that the result depends on
  std::function<Json()> run;
};

class Comparison {
 public:
  explicit Comparison(const CompareJob& job) : job_(job), tasks_(read_tasks(job)), bench_(job) {}

  Json run() {
    plan();
    Json results = facts();
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      job_.progress(static_cast<std::int64_t>(i), std::ssize(steps_),
                    step.group + " " + step.candidate.spec);
      if (impossible_.contains(step.candidate.spec)) continue;
      try {
        results[step.group][step.candidate.spec] = result_of(step);
      } catch (const Error& error) {
        leave_out(step, error);
        results["not_measured"].push_back({{"method", step.candidate.spec},
                                           {"measurement", step.group},
                                           {"reason", error.what()}});
      }
    }
    job_.progress(std::ssize(steps_), std::ssize(steps_), "");
    for (const Candidate& candidate : job_.candidates) {
      if (!impossible_.contains(candidate.spec)) results["candidates"].push_back(candidate.spec);
    }
    require(!results["candidates"].empty(), "no method could be measured; nothing to compare");
    if (!job_.keep_files) bench_.remove_files();
    return results;
  }

 private:
  Json result_of(const Step& step) {
    const bool again = is_asked_again(step);
    const std::optional<Json> kept = bench_.store().find(step.identity);
    if (kept && !again) return *kept;
    bench_.require_not_stopped();
    if (again && step.group == "file") bench_.remove_file(step.candidate);
    const Json result = step.run();
    bench_.store().keep(step.identity, result);
    return result;
  }

  // Whether to measure a stored result again. Steps that share an identity are measured only once.
  bool is_asked_again(const Step& step) {
    const bool setup = step.group == "file";
    const bool speed = std::ranges::find(kSpeedGroups, step.group) != kSpeedGroups.end();
    if (!setup && !speed) return false;
    const std::string_view part = setup ? "setup" : "speed";
    return std::ranges::find(job_.again, part) != job_.again.end() &&
           measured_again_.insert(identity_hash(step.identity)).second;
  }

  // Leaves out a step whose method or measurement does not support this model, so that the other
  // steps continue. Any other error ends the comparison.
  void leave_out(const Step& step, const Error& error) {
    const bool does_not_go =
        error.kind() == ErrorKind::bad_input || error.kind() == ErrorKind::bad_setting;
    if (!does_not_go || (step.candidate.is_base() && is_needed(step))) throw error;
    if (is_needed(step)) impossible_.insert(step.candidate.spec);
    job_.say(step.candidate.spec + ", " + step.group + ": left out: " + error.marked());
  }
  // Whether this step creates the file or measures quality, which every table of candidates needs.
  static bool is_needed(const Step& step) {
    return step.group == "file" || step.group == "quality";
  }

  // `sizes`: the fields of CompareSizes that the result depends on.
  using Measure = Json (*)(Workbench&, const Candidate&);
  void add(const std::string& group, const Candidate& candidate, Measure measure,
           const Json& sizes = {}) {
    Json identity = bench_.identity(candidate, group);
    if (group == "file") identity = {{"step", group}, {"file", bench_.file_identity(candidate)}};
    identity["sizes"] = sizes;
    steps_.push_back({group, candidate, std::move(identity),
                      [this, candidate, measure] { return measure(bench_, candidate); }});
  }

  void plan() {
    const CompareSizes& sizes = job_.sizes;
    std::vector<Candidate> all = job_.candidates;
    all.insert(all.begin(), parse_candidate(kBaseMethod));
    for (const Candidate& candidate : all) {
      add("file", candidate, measure_file);
      add("quality", candidate, measure_quality);
    }
    if (wants("speed")) {
      for (const Candidate& candidate : all) {
        add("speed", candidate, measure_speed,
            {sizes.bench_runs, sizes.prompt, sizes.generated, job_.threads});
      }
    }
    if (wants("layers")) {
      for (const Candidate& candidate : job_.candidates) {
        add("layers", candidate, measure_layers, {sizes.layer_windows, sizes.layer_tokens});
      }
    }
    if (wants("inside")) plan_inside(all);
    if (wants("curves")) plan_curves();
    for (const ChoiceTask& task : tasks_) plan_choices(all, task);
  }

  bool wants(std::string_view part) const {
    return std::ranges::find(job_.parts, part) != job_.parts.end();
  }

  void plan_inside(const std::vector<Candidate>& all) {
    const CompareSizes& sizes = job_.sizes;
    for (const Candidate& candidate : all) {
      add("activations", candidate, measure_activations, {sizes.layer_tokens});
      add("weights", candidate, measure_weights);
      add("hidden", candidate, measure_hidden, {sizes.layer_tokens, kFirstHidden});
      if (candidate.searches()) add("bits", candidate, measure_bits);
    }
  }

  void plan_curves() {
    const CompareSizes& sizes = job_.sizes;
    if (wants("speed")) plan_speed_curves();
    for (const Candidate& candidate : calibration_candidates(sizes.calibration_windows)) {
      add("file", candidate, measure_file);
      add("calibration", candidate, measure_quality);
    }
    for (const Candidate& candidate : input_candidates()) {
      add("inputs", candidate, measure_quality);
    }
    for (const Candidate& candidate : context_candidates()) {
      add("contexts", candidate, measure_contexts, {Json(sizes.contexts), sizes.context_tokens});
    }
    add("cache_bound", parse_candidate("simquant:8"), measure_cache_bound, sizes.layer_tokens);
  }

  void plan_speed_curves() {
    const CompareSizes& sizes = job_.sizes;
    for (const Candidate& candidate : batch_candidates()) {
      add("batches", candidate, measure_batches,
          {Json(sizes.sequences), sizes.generated, sizes.bench_runs, job_.threads});
    }
    add("ranks", parse_candidate("smoothquant:int8"), measure_ranks,
        {sizes.prompt, sizes.generated, sizes.bench_runs, job_.threads});
    add("fusion", parse_candidate("smoothquant:int8"), measure_fusion, job_.threads);
  }

  static std::vector<ChoiceTask> read_tasks(const CompareJob& job) {
    std::vector<ChoiceTask> tasks;
    for (const std::filesystem::path& file : job.choices) {
      tasks.push_back(read_choice_file(file, job.sizes.questions));
    }
    return tasks;
  }

  void plan_choices(const std::vector<Candidate>& all, const ChoiceTask& task) {
    for (const Candidate& candidate : all) {
      Json identity = {{"step", "choices"},
                       {"file", bench_.file_identity(candidate)},
                       {"cache", static_cast<int>(candidate.cache)},
                       {"task", task_identity(task)}};
      steps_.push_back({"choices " + task.name, candidate, std::move(identity),
                        [this, candidate, task] { return measure_task(bench_, candidate, task); }});
    }
  }

  Json facts() const {
    const ImportedModel& model = bench_.checkpoint();
    Json tasks = Json::array();
    for (const std::filesystem::path& file : job_.choices) tasks.push_back(file.stem().string());
    const ProtocolSettings& settings = bench_.windows().settings;
    return {{"model",
             {{"name", model.folder},
              {"description", model.description},
              {"layers", model.config.layer_count()},
              {"recurrent_layers",
               model.config.layer_count() - std::ssize(model.config.attention_layers())},
              {"width", model.config.width},
              {"context", model.config.context},
              {"parameters", parameter_count(model.config)}}},
            {"machine", {{"cpu", cpu_model_name()}, {"isa", isa_name(chosen_isa())}}},
            {"text",
             {{"name", job_.text.filename().string()},
              {"sha256", bench_.text().dataset_hash},
              {"tokens", std::ssize(bench_.tokens())},
              {"protocol", describe(settings)},
              {"window", settings.window},
              {"windows", std::ssize(bench_.windows().windows)},
              {"scored", bench_.windows().scored()}}},
            {"calibration_text",
             {{"source", job_.calibration.source.empty() ? "built-in" : job_.calibration.source},
              {"windows", job_.calibration.samples},
              {"length", job_.calibration.length}}},
            {"quick", job_.quick},
            {"version", kVersion},
            {"candidates", Json::array()},
            {"not_measured", Json::array()},
            {"tasks", tasks}};
  }

  const CompareJob& job_;
  std::vector<ChoiceTask> tasks_;
  Workbench bench_;  // last member that may throw, because it creates the folder
  std::vector<Step> steps_;
  std::set<std::string> measured_again_;  // identities
  std::set<std::string> impossible_;      // candidates without a file or quality result
};

}  // namespace

Json run_comparison(const CompareJob& job) { return Comparison(job).run(); }

}  // namespace leq
