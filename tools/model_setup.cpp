#include "model_setup.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"

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

void check_gpu_layers(const Options& options) {
  if (!options.given("gpu-layers")) return;
  require(options.text("gpu-layers") == "0", "-ngl ", printable(options.text("gpu-layers")),
          ": this build computes on the CPU alone; use -ngl 0 or leave it out");
}

KvType kv_type(const Options& options, std::string_view name, std::string_view flag,
               const Model& model) {
  if (!options.given(name)) return default_kv_type(model.type());
  return parse_kv_type(options.text(name), flag);
}

RunLimits limits_for(const Options& options, const Model& model, const AdjustLimits& adjust) {
  RunLimits limits;
  limits.key_type = kv_type(options, "cache-type-k", "-ctk", model);
  limits.value_type = kv_type(options, "cache-type-v", "-ctv", model);
  limits.batch_tokens = std::min(options.integer("batch-size"), options.integer("ubatch-size"));
  adjust(model, limits);
  return resolve_limits(limits, model.config());
}

// What a run needs beside the file, which decides whether the file is read or mapped.
std::uint64_t memory_beside(const Options& options, const AdjustLimits& adjust, Backend& backend) {
  const Model probe(options.text("model"), {.mode = LoadMode::map});
  const Weights weights = bind_weights(probe.file(), probe.config(), backend);
  const MemoryPlan plan = plan_memory(probe.file().file_bytes(), probe.config(), weights, backend,
                                      limits_for(options, probe, adjust));
  return plan.kv_bytes + plan.scratch_bytes;
}

LoadOptions load_options(const Options& options, const AdjustLimits& adjust, Backend& backend) {
  LoadOptions load;
  load.lock = options.flag("mlock");
  if (options.given("mmap")) {
    load.mode = options.flag("mmap") ? LoadMode::map : LoadMode::read;
  } else {
    load.memory_needed_beside = memory_beside(options, adjust, backend);
  }
  return load;
}

}  // namespace

ModelSetup set_up_model(const Options& options, const AdjustLimits& adjust) {
  check_gpu_layers(options);
  ModelSetup setup;
  setup.threads = resolve_threads(options);
  setup.backend = make_backend({.device = options.text("device"), .threads = setup.threads});
  setup.model =
      std::make_unique<Model>(options.text("model"), load_options(options, adjust, *setup.backend));
  setup.session = std::make_unique<Session>(*setup.model, *setup.backend,
                                            limits_for(options, *setup.model, adjust));
  return setup;
}

}  // namespace leq
