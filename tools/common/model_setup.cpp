#include "tools/common/model_setup.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/thread_pool.h"
#include "model/memory_fit.h"
#include "tools/common/model_path.h"

namespace leq {
namespace {

int resolve_threads(const Options& options) {
  const auto count = [&](std::string_view name) {
    const std::int64_t asked = options.integer(name);
    return asked <= 0 ? usable_cores() : static_cast<int>(asked);
  };
  const int threads = count("threads");
  if (options.given("threads-batch")) {
    require(count("threads-batch") == threads, "-tb ", options.integer("threads-batch"),
            ": one pool of threads does all work, expected ", threads, " as -t has it; leave -tb",
            " out");
  }
  return threads;
}

KvType kv_type(const Options& options, std::string_view name, Setting setting, const Model& model) {
  if (!options.given(name)) return default_kv_type(model.type());
  return parse_kv_type(options.text(name), setting);
}

RunLimits wanted_limits(const Options& options, const Model& model, const AdjustLimits& adjust) {
  RunLimits limits;
  limits.key_type = kv_type(options, "cache-type-k", Setting{"key_type"}, model);
  limits.value_type = kv_type(options, "cache-type-v", Setting{"value_type"}, model);
  limits.batch_tokens = std::min(options.integer("batch-size"), options.integer("ubatch-size"));
  adjust(model, limits);
  return limits;
}

// What a run needs beside the file, which decides whether the file is read or mapped.
std::uint64_t memory_beside(const Options& options, const AdjustLimits& adjust, Backend& backend) {
  const Model probe(options.text("model"), {.mode = LoadMode::map});
  const RunLimits wanted = wanted_limits(options, probe, adjust);
  const MemoryPlan plan =
      MemoryPlanner(probe, backend.layout()).plan(resolve_limits(wanted, probe.config()));
  return plan.kv_bytes + plan.scratch_bytes;
}

LoadOptions load_options(const Options& options, const AdjustLimits& adjust, Backend& backend) {
  LoadOptions load;
  load.lock = options.flag("mlock");
  if (options.given("mmap")) {
    load.mode = options.flag("mmap") ? LoadMode::map : LoadMode::read;
  } else if (backend.memory().room()) {
    load.mode = LoadMode::map;  // read once, on the way to the device
  } else {
    load.memory_needed_beside = memory_beside(options, adjust, backend);
  }
  return load;
}

}  // namespace

ModelSetup set_up_model(const Options& options, const AdjustLimits& adjust) {
  check_model_file("-m", options.text("model"));
  ModelSetup setup;
  setup.threads = resolve_threads(options);
  setup.backend = chosen_backend(options, setup.threads);
  setup.backend->record_steps(options.flag("graph"));
  setup.model =
      std::make_unique<Model>(options.text("model"), load_options(options, adjust, *setup.backend));
  const Model& model = *setup.model;
  check_gpu_layers(options, model.config().layers);
  FittedLimits fitted = fit_limits(wanted_limits(options, model, adjust), model, *setup.backend);
  setup.note = std::move(fitted.note);
  setup.session = std::make_unique<Session>(model, *setup.backend, fitted.limits);
  return setup;
}

}  // namespace leq
