#include "model_setup.h"

#include <algorithm>
#include <charconv>
#include <string>

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

constexpr std::int64_t kAllLayers = -1;

// Layers that -ngl asks for on a GPU: 0, kAllLayers or a number.
std::int64_t gpu_layers(const Options& options) {
  const std::string& text = options.text("gpu-layers");
  if (text == "all" || text == "-1") return kAllLayers;
  std::int64_t layers = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layers);
  require(error == std::errc() && end == text.data() + text.size() && layers >= 0, "-ngl ",
          printable(text), ": expected 0 (the CPU) or all (a GPU)");
  return layers;
}

// -dev, where -ngl does not say it: 0 is the CPU, anything else the first GPU.
std::string device_name(const Options& options) {
  std::string device = options.text("device");
  if (!options.given("gpu-layers")) return device;
  const bool on_gpu = gpu_layers(options) != 0;
  if (!options.given("device")) return on_gpu ? "cuda:0" : "cpu";
  require(on_gpu == (device != "cpu"), "-ngl ", printable(options.text("gpu-layers")), " and -dev ",
          printable(device), " contradict each other; leave one out");
  return device;
}

std::unique_ptr<Backend> chosen_backend(const Options& options, int threads) {
  const std::string device = device_name(options);
  try {
    return make_backend({.device = device, .threads = threads});
  } catch (const Error& error) {
    if (!options.given("gpu-layers")) throw;
    fail("-ngl ", printable(options.text("gpu-layers")), ": ", error.what());
  }
}

// A model is on one device as a whole.
void check_gpu_layers(const Options& options, const Model& model) {
  if (!options.given("gpu-layers")) return;
  const std::int64_t asked = gpu_layers(options), layers = model.config().layers;
  require(asked == 0 || asked == kAllLayers || asked >= layers, "-ngl ", asked, ": the model has ",
          layers, " layers, and all of them run on one device; use -ngl all for the GPU or -ngl 0",
          " for the CPU");
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
  if (device_name(options) != "cpu" && !options.given("mmap")) {
    load.mode = LoadMode::map;  // read once, on the way to the device
  } else if (options.given("mmap")) {
    load.mode = options.flag("mmap") ? LoadMode::map : LoadMode::read;
  } else {
    load.memory_needed_beside = memory_beside(options, adjust, backend);
  }
  return load;
}

}  // namespace

ModelSetup set_up_model(const Options& options, const AdjustLimits& adjust) {
  ModelSetup setup;
  setup.threads = resolve_threads(options);
  setup.backend = chosen_backend(options, setup.threads);
  setup.backend->record_steps(options.flag("graph"));
  setup.model =
      std::make_unique<Model>(options.text("model"), load_options(options, adjust, *setup.backend));
  check_gpu_layers(options, *setup.model);
  setup.session = std::make_unique<Session>(*setup.model, *setup.backend,
                                            limits_for(options, *setup.model, adjust));
  return setup;
}

Answer list_devices_answer() {
  return {"list-devices", "print what -dev takes here and exit", [] {
            std::string text;
            for (const std::string& line : list_devices()) text += line + "\n";
            return text;
          }};
}

}  // namespace leq
