#include "tools/common/model_setup.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "engine/speculation.h"
#include "tools/common/kv_choice.h"
#include "tools/common/model_file.h"
#include "tools/common/model_name.h"
#include "tools/common/model_options.h"

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
  const Model header(runtime.file, {.mode = LoadMode::map, .weights = false});
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
  wanted.shown = [](const std::string& name) {
    const std::string gguf = converted_from(name);
    return gguf.empty() ? name : gguf;
  };
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

namespace {

// Returns kernels by linear site in the forward pass's order; differing layers get extra lines.
std::vector<std::string> kernel_lines(const Weights& weights, const Backend& backend) {
  struct Kernel {
    std::string text;
    std::size_t layers = 0;
  };
  struct Site {
    std::string name;
    std::vector<Kernel> kernels;
  };
  std::vector<Site> sites;
  const auto at = [](auto& list, auto member, const std::string& key) -> auto& {
    const auto known = std::ranges::find(list, key, member);
    if (known != list.end()) return *known;
    auto& added = list.emplace_back();
    added.*member = key;
    return added;
  };
  for (const LayerWeights& layer : weights.layers) {
    for (const LayerLinear* linear : layer.linears()) {
      Site& site = at(sites, &Site::name, linear->site_name);
      ++at(site.kernels, &Kernel::text, backend.describe(*linear)).layers;
    }
  }
  std::vector<std::string> lines;
  for (const Site& site : sites) {
    for (const Kernel& kernel : site.kernels) {
      const bool some = kernel.layers < weights.layers.size();
      lines.push_back(site.name + ": " + kernel.text +
                      (some ? " (" + std::to_string(kernel.layers) + " layers)" : ""));
    }
  }
  lines.push_back("head: " + backend.describe(weights.head));
  return lines;
}

// Returns how a model was loaded: "mapped, used in place", "mapped, uploaded 3.50 GB in 0.42 s".
std::string load_text(const Model& model, const Weights& weights) {
  const bool mapped = model.file().mapped();
  const UploadReport& upload = weights.upload;
  std::uint64_t copied = 0;
  for (const StoredTensor& tensor : model.file().tensors()) {
    if (tensor.unpadded) copied += tensor.memory_bytes();
  }
  const std::string padded = copied > 0 ? "; " + human_bytes(copied) + " are a padded copy" : "";
  if (upload.bytes == 0) return (mapped ? "mapped, used in place" : "read into memory") + padded;
  const double speed = static_cast<double>(upload.bytes) / std::max(upload.seconds, 1e-9) / 1e9;
  return std::string(mapped ? "mapped" : "read into memory") + ", uploaded " +
         human_bytes(upload.bytes) + " in " + fixed(upload.seconds, 2) + " s (" +
         fixed(speed, speed < 1 ? 3 : 1) + " GB/s)";
}

}  // namespace

std::vector<std::string> plan_lines(const Model& model, Session& session) {
  const Backend& backend = session.transformer().backend();
  const RunLimits& limits = session.limits();
  const MemoryPlan& plan = session.plan();
  std::vector<std::string> lines = {"model: " + describe(model.config())};
  lines.push_back("device: " + backend.name());
  if (session.ranks() > 1) {
    lines.push_back("ranks: " + std::to_string(session.ranks()) +
                    "; what follows is the first one's");
  }
  for (auto& line : kernel_lines(session.weights(), backend)) lines.push_back(std::move(line));
  lines.push_back("context: " + with_commas(limits.context) + " positions, prompt chunks of " +
                  with_commas(limits.batch_tokens));
  if (!session.transformer().rope_note().empty()) {
    lines.push_back("rope: " + session.transformer().rope_note());
  }
  lines.push_back("kv cache: " + kv_text(limits) + ", " + human_bytes(plan.kv_bytes));
  if (const KvCache& cache = session.cache(); cache.frame_count() > 0) {
    lines.push_back("kv cache: layers with a window of up to " + with_commas(cache.shape().window) +
                    " keep " + with_commas(cache.frame_count() * kPageTokens) + " positions");
  }
  if (const FixedStates* states = session.state().fixed()) {
    lines.push_back("states: " + std::to_string(states->count()) + " of " +
                    human_bytes(states->bytes_each()) + ", " + std::to_string(limits.kept_states) +
                    " of them for earlier texts");
  }
  if (std::string wide = wide_keys_text(session.cache().shape(), limits); !wide.empty()) {
    lines.push_back("kv cache: " + std::move(wide));
  }
  lines.push_back("memory: weights " + human_bytes(plan.weight_bytes) + ", kv cache " +
                  human_bytes(plan.kv_bytes) +
                  (plan.state_bytes > 0 ? ", states " + human_bytes(plan.state_bytes) : "") +
                  ", scratch " + human_bytes(plan.scratch_bytes) + ", total " +
                  human_bytes(plan.total()));
  lines.push_back("load: " + load_text(model, session.weights()));
  if (model.has_tokenizer()) lines.push_back("tokenizer: " + model.tokenizer().summary());
  return lines;
}

}  // namespace leq
