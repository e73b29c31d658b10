#include "quantize/run/quantize_job.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <new>
#include <stdexcept>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "convert/hf_tokenizer.h"
#include "convert/import.h"
#include "quantize/run/run_identity.h"
#include "ranks/communicator.h"
#include "quantize/run/base_file.h"
#include "quantize/run/calibration_size.h"
#include "tokenizer/tokenizer.h"

namespace leq {
namespace {

// The first windows of a text, with which the speed of this machine is measured.
CalibrationData timed_windows(const ImportedModel& model, CalibrationRequest request) {
  request.samples = kTimedWindows;
  return calibration_data(request, Tokenizer(model.tokenizer), model.config.context);
}

TimePlan plan_time(const QuantizeJob& job, const ModelConfig& config, std::int64_t length,
                   double seconds_of_window) {
  TimePlan plan = {.length = length, .seconds_of_window = seconds_of_window};
  const ChoosingWork work = job.recipe == nullptr ? ChoosingWork() : job.recipe->work;
  plan.choosing_seconds = choosing_seconds(config, work, seconds_of_window, length);
  plan.budget = job.seconds.value_or(kCalibrationSeconds + plan.choosing_seconds);
  plan.windows = windows_within(plan.budget - plan.choosing_seconds, seconds_of_window,
                                job.seconds ? kBudgetedCalibrationWindows : kCalibrationWindows);
  return plan;
}

// Sets the number of calibration windows and returns the number of gate windows.
std::int64_t fit_windows(const QuantizeJob& job, const ImportedModel& model,
                         CheckpointOptions& checkpoint) {
  const CalibrationData data = timed_windows(model, checkpoint.calibration);
  const double seconds = measure_window_seconds(model, data, checkpoint);
  const std::filesystem::path partial = job.output.string() + ".partial";
  const auto kept = checkpoint.resume ? windows_of_interrupted_run(partial) : std::nullopt;
  if (kept) {
    checkpoint.calibration.samples = *kept;
  } else {
    const TimePlan plan = plan_time(job, model.config, data.length, seconds);
    checkpoint.calibration.samples = plan.windows;
    checkpoint.say(time_report(plan));
  }
  return windows_within(kGateSeconds, comparison_seconds(seconds, 1, 0), kFittedGateWindows);
}

// The reason why a distance cannot be measured at all or in time; empty if it can.
std::string obstacle(const QuantizeJob& job, const ImportedModel& model,
                     const GateResources& resources) {
  const GateText& text = job.judged_by;
  const Tokenizer tokenizer(model.tokenizer);
  const auto tokens =
      std::ssize(tokenizer.encode(text.text, {.parse_special = false, .add_bos = false}));
  if (tokens < kFewestGateTokens) {
    return text.name + " has " + std::to_string(tokens) + " tokens, too few";
  }
  CalibrationRequest request;
  request.text = text.text;
  request.source = text.name;
  const double window =
      measure_window_seconds(model, timed_windows(model, request), job.checkpoint);
  const double seconds = comparison_seconds(window, kDistanceWindows, resources.disk_needed);
  if (seconds <= kDistanceSeconds) return "";
  return "it would take about " + fixed(seconds / 60, 1) + " min";
}

// The reason why the gate or distance is left out; empty if it is not.
std::string left_out(const QuantizeJob& job, const ImportedModel& model) {
  const GateResources resources = gate_resources(model, job.output, job.checkpoint.max_ram);
  std::string why = disk_shortage(resources);
  if (why.empty() && job.gate_mode != GateMode::gate_at_a_cost) why = memory_shortage(resources);
  if (why.empty() && model.config.context < kFewestGateTokens) {
    why = "a context of " + std::to_string(model.config.context) + " positions is too short";
  }
  if (!why.empty() || job.gate_mode != GateMode::distance) return why;
  try {
    return obstacle(job, model, resources);
  } catch (const Error& error) {  // one block in f32 needs more than max_ram
    if (job.checkpoint.stop()) throw;
    return error.what();
  }
}

std::optional<GateResult> judge(const QuantizeJob& job, const ImportedModel& model,
                                std::int64_t gate_windows, BaseFile& base) {
  if (job.gate_mode == GateMode::none) return std::nullopt;
  const bool is_gate = job.gate_mode != GateMode::distance;
  const auto& say = job.checkpoint.say;
  if (const std::string why = left_out(job, model); !why.empty()) {
    say((is_gate ? "gate        left out: " : "distance    left out: ") + why);
    return std::nullopt;
  }
  const GateResult result = compare_with_base(
      job.judged_by, base.path(), job.output, is_gate ? gate_windows : kDistanceWindows,
      job.checkpoint, [&](std::int64_t done, std::int64_t total) {
        if (is_gate) job.progress("gate", done, total, "");
      });
  if (is_gate) keep_gate(result, job.judged_by, job.output);
  const double max_kl = job.search && job.search->search.fit ? job.search->search.fit->max_kl : 0;
  say(!is_gate     ? distance_report(result)
      : max_kl > 0 ? gate_report(result, max_kl)
                   : gate_report(result, job.recipe));
  return result;
}

void search(const QuantizeJob& job, const ImportedModel& model, const CheckpointOptions& checkpoint,
            BaseFile& base) {
  SearchedBits bits = *job.search;
  bits.search.options.progress = [&](int done, double best) {
    job.progress("search", done, bits.search.options.evaluations, "best " + fixed(best, 6));
  };
  job.searched(quantize_by_search(
      model, job.output, checkpoint, bits, base.path(),
      [&](std::int64_t done, std::int64_t total) { job.progress("candidates", done, total, ""); }));
}

// All checks that can fail before the first weight is read.
void check_job(const QuantizeJob& job, const ImportedModel& model) {
  std::vector<std::filesystem::path> inputs = job.texts;
  if (!job.checkpoint.load_stats.empty()) inputs.push_back(job.checkpoint.load_stats);
  check_outputs(model,
                std::array{job.output, job.checkpoint.save_stats,
                           job.search ? job.search->search.options.log : std::filesystem::path()},
                inputs);
  if (job.search) check_search(model, job.checkpoint, *job.search);
  if (job.gate_mode == GateMode::none) return;
  const GateText& text = job.judged_by;
  require(text.text != job.checkpoint.calibration.text, text.name,
          ": this text was used for calibration, so KL on it does not show quality on other texts; "
          "choose another");
  if (job.gate_mode == GateMode::distance || model.config.context < kFewestGateTokens) return;
  const auto ids =
      Tokenizer(model.tokenizer).encode(text.text, {.parse_special = false, .add_bos = false});
  check_gate_text(text, std::ssize(ids), model.config.context);
}

}  // namespace

std::string time_report(const TimePlan& plan) {
  const std::string windows = std::to_string(plan.windows);
  const double seconds =
      static_cast<double>(plan.windows) * plan.seconds_of_window + plan.choosing_seconds;
  return "calibration " + windows + " windows of " + std::to_string(plan.length) + " tokens (" +
         fixed(plan.seconds_of_window, 2) + " s each), then folds and codes: about " +
         fixed(seconds, 0) + " s of " + fixed(plan.budget, 0) + " s" +
         (seconds > plan.budget ? ", the least that it takes" : "") + "; " +
         Setting{"samples"}.marked() + ' ' + windows + " makes the same file on any machine";
}

namespace {

// Broadcasts the leader's number of windows to all ranks.
void agree_on_windows(Communicator& ranks, CheckpointOptions& checkpoint) {
  std::vector<std::byte> bytes(sizeof checkpoint.calibration.samples);
  std::memcpy(bytes.data(), &checkpoint.calibration.samples, bytes.size());
  ranks.broadcast(bytes, "the number of windows");
  ensure(bytes.size() == sizeof checkpoint.calibration.samples, "windows in ", bytes.size(),
         " bytes");
  std::memcpy(&checkpoint.calibration.samples, bytes.data(), bytes.size());
}

// The part of the work that a rank other than the leader does.
void follow(const QuantizeJob& job, const ImportedModel& model) {
  CheckpointOptions checkpoint = job.checkpoint;
  if (job.fit_windows) agree_on_windows(*checkpoint.ranks, checkpoint);
  quantize_imported(model, job.output, checkpoint, [](auto, auto) {});
}

// The file is complete before its gate runs, so too little memory for the gate is not an error.
std::optional<GateResult> judge_written(const QuantizeJob& job, const ImportedModel& model,
                                        std::int64_t gate_windows, BaseFile& base) {
  const auto no_memory = [&](const std::string& why) {
    job.checkpoint.say("warning     " + why + ": " + job.output.string() +
                       " is complete, but its KL divergence was not measured; run again with fewer "
                       "other programs in memory, or measure it with leq-perplexity");
    return std::nullopt;
  };
  try {
    return judge(job, model, gate_windows, base);
  } catch (const std::bad_alloc&) {
    return no_memory("out of memory");
  } catch (const std::length_error&) {
    return no_memory("out of memory");
  } catch (const Error& error) {
    require(!job.checkpoint.stop(), ErrorKind::interrupted, "interrupted; ", job.output.string(),
            " is complete, without its gate");
    if (error.kind() == ErrorKind::no_memory) return no_memory(std::string(error.marked()));
    throw;
  }
}

std::optional<GateResult> lead(const QuantizeJob& job, const ImportedModel& model) {
  Communicator& ranks = *job.checkpoint.ranks;
  check_job(job, model);
  BaseFile base(model, job.output, job.checkpoint);
  CheckpointOptions checkpoint = job.checkpoint;
  const std::int64_t gate_windows =
      job.fit_windows ? fit_windows(job, model, checkpoint) : kGateWindows;
  if (job.fit_windows) agree_on_windows(ranks, checkpoint);
  if (job.search) {
    search(job, model, checkpoint, base);
  } else {
    job.written(quantize_imported(
        model, job.output, checkpoint,
        [&](std::int64_t done, std::int64_t total) { job.progress("quantize", done, total, ""); }));
  }
  return judge_written(job, model, gate_windows, base);
}

}  // namespace

void require_divisible(const QuantizeJob& job, int ranks) {
  require(ranks == 1 || !job.search, Setting{"ranks"}, " ", ranks,
          ": a search is one rank's work; leave it out, or ", Setting{"strategy"});
}

std::optional<GateResult> run_job(const QuantizeJob& job) {
  Communicator& ranks = *job.checkpoint.ranks;
  require_divisible(job, ranks.size());
  std::optional<GateResult> found;
  together(ranks, [&] {
    if (ranks.leads()) check_output(job.output);
    ImportedModel model = import_checkpoint(job.folder);
    if (job.fix_mistral_regex) fix_mistral_pattern(model.tokenizer);
    QuantizeJob own = job;
    if (job.keeps_types) keep_types(model, own.checkpoint);
    if (ranks.leads()) {
      for (const std::string& note : model.notes) own.checkpoint.say("checkpoint  " + note);
      found = lead(own, model);
    } else {
      follow(own, model);
    }
  });
  return found;
}

}  // namespace leq
