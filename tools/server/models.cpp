#include "tools/server/models.h"

#include <algorithm>
#include <limits>
#include <system_error>

#include "base/error.h"
#include "base/text.h"
#include "format/gguf_source.h"
#include "format/loaded_file.h"
#include "runtime/runtime.h"
#include "tools/common/device_choice.h"
#include "tools/common/model_file.h"
#include "tools/common/model_options.h"
#include "tools/server/options.h"

namespace leq::server_tool {
namespace {

namespace fs = std::filesystem;

RunLimits wanted_limits(const Options& options, const Model& model, RunLimits limits) {
  limits.context = options.integer("ctx-size");
  limits.sequences = static_cast<int>(options.integer("parallel"));
  // A single sequence may use all positions that the other sequences do not need.
  limits.sequence_context = std::numeric_limits<std::int64_t>::max();
  const Drafting drafting = !speculates(options) ? Drafting::off
                            : options.given("model-draft") || drafts_by_mtp(options, model)
                                ? Drafting::by_model
                                : Drafting::from_text;
  limits.output_tokens = reply_rows(limits.sequences, drafting);
  return limits;
}

// Returns the memory of all loaded models together: --models-memory, otherwise a GPU's memory,
// otherwise the memory available now minus a share for everything else.
std::uint64_t memory_of_models(const Options& options) {
  if (options.given("models-memory")) {
    const auto bytes = parse_bytes(options.text("models-memory"));
    require(bytes && *bytes > 0, "--models-memory ", options.text("models-memory"),
            ": expected a size as 16G");
    return *bytes;
  }
  if (const auto memory = chosen_backend(options, 1)->memory().info()) return memory->bytes;
  constexpr std::uint64_t kShareForOthers = 10;
  const auto available = available_memory();
  if (!available) return std::numeric_limits<std::uint64_t>::max();
  return *available - *available / kShareForOthers;
}

// --sleep-idle-seconds: "N" for all models, "NAME=N" for one.
void read_idle_seconds(const Options& options, PoolOptions& pool) {
  for (const std::string& text : options.list("sleep-idle-seconds")) {
    const std::size_t at = text.rfind('=') + 1;  // 0 if there is none
    const auto number = parse_double(std::string_view(text).substr(at));
    require(number && *number >= -1 && *number <= 1e9, "--sleep-idle-seconds ", printable(text),
            ": expected seconds, or a model's name and seconds as small=60");
    const double seconds = *number < 0 ? kNeverIdle : *number;
    (at == 0 ? pool.idle_seconds : pool.idle_seconds_of[text.substr(0, at - 1)]) = seconds;
  }
}

void require_models(const PoolOptions& pool, const Presets& presets) {
  const std::vector<ModelFile> files = models_in(pool.folder);
  const auto require_model = [&](std::string_view flag, const std::string& name) {
    const bool is_default =
        pool.file && name == (pool.file_name.empty() ? model_name_of(*pool.file) : pool.file_name);
    require(is_default || std::ranges::find(files, name, &ModelFile::name) != files.end(), flag,
            " ", printable(name), ": there is no such model in ", pool.folder.string());
  };
  for (const std::string& name : pool.pinned) require_model("--pin", name);
  for (const auto& [name, seconds] : pool.idle_seconds_of) {
    require_model("--sleep-idle-seconds", name);
  }
  for (const std::string& name : presets.models()) require_model("--models-preset", name);
}

// Returns the options of a file of the folder, which is the value of -m.
Options with_model(const Options& options, const Presets& presets, const fs::path& file) {
  require(!begins_as_gguf_file(file) || options.flag("cache"), file.string(),
          ": is a GGUF file, which is converted into the cache; leave --no-cache out");
  Options one = presets.with(options, model_name_of(file.string()));
  one.set_text("model", file.string());
  return one;
}

}  // namespace

AdjustLimits server_limits(const Options& options) {
  return [options](const Model& model, RunLimits& limits) {
    limits = wanted_limits(options, model, limits);
  };
}

void finish_host_options(const Options& options, const Runtime& setup, HostOptions& host) {
  host.sampling =
      choose_sampling(read_sampling(options), setup.model->generation().sampling).settings;
  host.engine.speculate = speculates(options);
  host.engine.find_drafts = finds_drafts(options);
  host.engine.max_draft_tokens = options.integer("draft-max");
  host.engine.draft = setup.draft_session.get();
}

Presets read_presets(const Options& options, const HostOptions& host) {
  if (!options.given("models-preset")) return {};
  return Presets(options.text("models-preset"), model_preset_spec(), host.say);
}

PoolOptions pool_options(const Options& options, const Presets& presets, const HostOptions& host) {
  PoolOptions pool;
  pool.pinned = options.list("pin");
  read_idle_seconds(options, pool);
  std::int64_t parallel = presets.with(options, "").integer("parallel");
  for (const std::string& name : presets.models()) {
    parallel = std::max(parallel, presets.with(options, name).integer("parallel"));
  }
  pool.requests = static_cast<std::size_t>(parallel) + host.most_waiting;
  pool.say = host.say;
  if (!options.given("models-dir")) {
    require(pool.pinned.empty() && pool.idle_seconds_of.empty() && !options.given("models-preset"),
            "--pin, --models-preset and --sleep-idle-seconds NAME=N name models of --models-dir, ",
            "and there is none");
    check_model_file("-m", options.text("model"));
    pool.file = options.text("model");
    pool.file_name = host.name;
    pool.memory_bytes = std::numeric_limits<std::uint64_t>::max();
    pool.models = 1;
    return pool;
  }
  require(!options.given("model-draft"),
          "-md: a draft model belongs to one model; start that one without --models-dir");
  require(rank_count(options) == 1, "--tp ", options.integer("tp"),
          ": the models of --models-dir run on one rank each");
  pool.folder = options.text("models-dir");
  std::error_code error;
  require(fs::is_directory(pool.folder, error), "--models-dir ",
          printable(options.text("models-dir"), 4096), ": expected a folder");
  if (options.given("model")) {
    check_model_file("-m", options.text("model"));
    pool.file = options.text("model");
    pool.file_name = host.name;
  } else {
    require(host.name.empty(), "-a ", host.name, ": names the model of -m, and there is none");
  }
  pool.memory_bytes = memory_of_models(options);
  pool.models = static_cast<std::size_t>(options.integer("models-max"));
  if (pool.models == 0) pool.models = std::numeric_limits<std::size_t>::max();
  require_models(pool, presets);
  return pool;
}

ModelLoader pool_loader(const Options& options, const Presets& presets, const HostOptions& host,
                        std::uint64_t memory_bytes) {
  ModelLoader loader;
  loader.plan = [=](const fs::path& file) {
    std::uint64_t bytes = 0;
    if (!options.given("models-dir")) return bytes;  // nothing is unloaded for the only model
    with_model_files(with_model(options, presets, file), [&](const Options& one) {
      bytes = planned_bytes(one, server_limits(one), memory_bytes);
      return 0;
    });
    return bytes;
  };
  loader.load = [=](const fs::path& file) {
    RunnableModel runnable;
    runnable.options = host;
    with_model_files(with_model(options, presets, file), [&](const Options& one) {
      read_replies(one, runnable.options);
      std::optional<fs::path> draft;
      if (one.given("model-draft")) draft = one.text("model-draft");
      auto setup = std::make_shared<Runtime>(set_up_model(one, server_limits(one), draft));
      if (!setup->note.empty()) host.say(setup->note);
      finish_host_options(one, *setup, runnable.options);
      runnable.model = setup->model.get();
      runnable.session = setup->session.get();
      runnable.owner = std::move(setup);
      return 0;
    });
    return runnable;
  };
  return loader;
}

}  // namespace leq::server_tool
