#include "tools/common/model_setup.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/progress.h"
#include "engine/speculation.h"
#include "tools/common/kv_choice.h"
#include "tools/common/model_path.h"
#include "tools/common/rank_choice.h"
#include "tools/common/reply_options.h"

namespace leq {
namespace {

int resolve_threads(const Options& options) {
  const auto count = [&](std::string_view name) {
    const std::int64_t asked = options.integer(name);
    return threads_for(static_cast<int>(asked), numa_mode(options));
  };
  const int threads = count("threads");
  if (options.given("threads-batch")) {
    require(count("threads-batch") == threads, "-tb ", options.integer("threads-batch"),
            ": one pool of threads does all work, expected ", threads, " as -t has it; leave -tb",
            " out");
  }
  return threads;
}

RunLimits wanted_limits(const Options& options, const Model& model, const AdjustLimits& adjust) {
  check_gpu_layers(options, model.config().layer_count());
  RunLimits limits;
  choose_kv(options, model, limits);
  limits.batch_tokens = std::min(options.integer("batch-size"), options.integer("ubatch-size"));
  adjust(model, limits);
  return limits;
}

RuntimeOptions runtime_options(const Options& options, const AdjustLimits& adjust) {
  RuntimeOptions runtime;
  runtime.file = options.text("model");
  runtime.device = device_options(options, resolve_threads(options));
  runtime.record_steps = options.flag("graph");
  runtime.ranks = rank_count(options);
  runtime.load.lock = options.flag("mlock");
  if (options.given("mmap")) {
    runtime.load.mode = options.flag("mmap") ? LoadMode::map : LoadMode::read;
  }
  runtime.limits = [&](const Model& model) { return wanted_limits(options, model, adjust); };
  runtime.drafts_by_mtp = [&](const Model& model) { return drafts_by_mtp(options, model); };
  return runtime;
}

}  // namespace

std::uint64_t planned_bytes(const Options& options, const AdjustLimits& adjust,
                            std::uint64_t most) {
  check_model_file("-m", options.text("model"));
  const RuntimeOptions runtime = runtime_options(options, adjust);
  const Model header(runtime.file, {.mode = LoadMode::map});
  const RuntimePlan plan = plan_runtime(header, runtime.limits(header), runtime.device, most);
  if (!drafts_by_mtp(options, header)) return plan.memory.total();
  const auto layout = make_layout(runtime.device);
  return plan.memory.total() + plan_mtp(header, plan.limits, *layout).total();
}

Runtime set_up_model(const Options& options, const AdjustLimits& adjust,
                     const std::optional<std::filesystem::path>& draft) {
  RuntimeOptions wanted = runtime_options(options, adjust);
  check_model_file("-m", options.text("model"));
  if (draft) check_model_file("-md", *draft);
  wanted.draft = draft;
  std::optional<Progress> line;  // on a terminal, for a large file
  wanted.load.progress = [&](std::uint64_t done, std::uint64_t total) {
    if (!line) line.emplace("loading", static_cast<std::int64_t>(total), "bytes");
    line->update(static_cast<std::int64_t>(done));
    if (done == total) line->clear();
  };
  Runtime runtime;
  naming_gpu_layers(options, [&] { runtime = open_runtime(wanted); });
  return runtime;
}

}  // namespace leq
