// leq-server: serves models through the OpenAI API, with a chat page.
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/mapping_watch.h"
#include "base/system.h"
#include "base/text.h"
#include "format/gguf_source.h"
#include "format/loaded_file.h"
#include "model/memory_plan.h"
#include "runtime/model_files.h"
#include "runtime/runtime.h"
#include "server/model_pool.h"
#include "server/server.h"
#include "tools/common/device_choice.h"
#include "tools/common/mains.h"
#include "tools/common/model_file.h"
#include "tools/common/model_name.h"
#include "tools/common/model_options.h"
#include "tools/common/model_setup.h"
#include "tools/common/modelfile.h"
#include "tools/common/options.h"
#include "tools/common/pull.h"
#include "tools/common/setting_flags.h"
#include "tools/server/options.h"
#include "tools/server/presets.h"

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

// The models of a server that has several.
struct Served {
  std::string place;                                   // in messages: a folder, "`leq ls`"
  std::function<std::vector<ModelFile>()> files = {};  // empty: the only model is that of -m

  // The name of a listed file, otherwise that of the file.
  std::string name_of(const fs::path& path) const {
    if (files) {
      for (const ModelFile& file : files()) {
        if (file.path == path && file.name_of == NameOf::file) return file.name;
      }
    }
    return model_name_of(path.string());
  }
};

ModelFile named_by_settings(const std::string& name, const fs::path& path) {
  ModelFile file = model_file(name, path);
  file.name_of = NameOf::settings;
  return file;
}

// The file that a name of `leq create` stands for; nullopt if it is not here.
std::optional<fs::path> file_of_created(const KeptModel& created) try {
  std::error_code error;
  const fs::path path = path_of_model(load_modelfile(created.path).from);
  return fs::is_regular_file(path, error) ? std::optional(path) : std::nullopt;
} catch (const Error&) {  // removed or damaged meanwhile
  return std::nullopt;
}

// What `leq ls` lists and is here, under the same names.
std::vector<ModelFile> all_models() {
  std::error_code error;
  fs::create_directories(models_folder(), error);  // models_in says what is wrong with it
  std::vector<ModelFile> files;
  for (const KeptModel& model : listed_models()) {
    files.push_back(model_file(model.name, model.path));
  }
  for (const KeptModel& created : created_models()) {
    if (const auto file = file_of_created(created)) {
      files.push_back(named_by_settings(created.name, *file));
    }
  }
  return files;
}

// Requests may name models as users do, also by their paths.
std::string requested_name(const std::string& name) {
  const bool is_path = name.ends_with(".leq") || name.ends_with(".gguf");
  return is_path ? fs::path(name).filename().string() : whole_name(name);
}

void require_models(const Served& served, const PoolOptions& pool, const Presets& presets) {
  const std::vector<ModelFile> files = served.files();
  const auto require_model = [&](std::string_view flag, const std::string& name) {
    const bool is_default =
        pool.file && name == (pool.file_name.empty() ? model_name_of(*pool.file) : pool.file_name);
    require(is_default || std::ranges::find(files, name, &ModelFile::name) != files.end(), flag,
            " ", printable(name), ": there is no such model in ", served.place);
  };
  for (const std::string& name : pool.pinned) require_model("--pin", name);
  for (const auto& [name, seconds] : pool.idle_seconds_of) {
    require_model("--sleep-idle-seconds", name);
  }
  for (const std::string& name : presets.models()) require_model("--models-preset", name);
}

// Returns the options of one of the served files, which is the value of -m.
Options with_model(const Options& options, const Served& served, const Presets& presets,
                   const fs::path& file) {
  require(!begins_as_gguf_file(file) || options.flag("cache"), file.string(),
          ": is a GGUF file, which is converted into the cache; leave --no-cache out");
  Options one = presets.with(options, served.name_of(file));
  one.set_text("model", file.string());
  return one;
}

// Returns the limits of a server's session.
AdjustLimits server_limits(const Options& options) {
  return [options](const Model& model, RunLimits& limits) {
    limits = wanted_limits(options, model, limits);
  };
}

void read_sampling_of(const Options& options, const Model& model, HostOptions& host) {
  host.sampling = choose_sampling(read_sampling(options), model.generation().sampling).settings;
}

// Sets the sampling and engine options that depend on the model.
void finish_host_options(const Options& options, const Runtime& setup, HostOptions& host) {
  read_sampling_of(options, *setup.model, host);
  host.engine.speculate = speculates(options);
  host.engine.find_drafts = finds_drafts(options);
  host.engine.max_draft_tokens = options.integer("draft-max");
  host.engine.draft = setup.draft_session.get();
}

// Returns the options of --models-dir and related flags, or of one model that is loaded again after
// it was idle. Throws Error if they contradict others.
Presets read_presets(const Options& options, const HostOptions& host) {
  if (!options.given("models-preset")) return {};
  return Presets(options.text("models-preset"), model_preset_spec(), host.say);
}

PoolOptions pool_options(const Options& options, const Served& served, const Presets& presets,
                         const HostOptions& host) {
  PoolOptions pool;
  pool.pinned = options.list("pin");
  read_idle_seconds(options, pool);
  std::int64_t parallel = presets.with(options, "").integer("parallel");
  for (const std::string& name : presets.models()) {
    parallel = std::max(parallel, presets.with(options, name).integer("parallel"));
  }
  pool.requests = static_cast<std::size_t>(parallel) + host.most_waiting;
  pool.say = host.say;
  if (!served.files) {
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
          "-md: a draft model belongs to one model; name that one alone");
  require(rank_count(options) == 1, "--tp ", options.integer("tp"),
          ": several models run on one rank each; name one model alone");
  pool.files = served.files;
  pool.whole_name = requested_name;
  if (options.given("model")) {
    pool.file = path_of_model(options.text("model"));
    if (!begins_as_gguf_file(*pool.file)) check_model_file("-m", pool.file->string());
    pool.file_name = host.name;
  } else {
    require(host.name.empty(), "-a ", host.name, ": names the model of -m, and there is none");
  }
  pool.memory_bytes = memory_of_models(options);
  pool.models = static_cast<std::size_t>(options.integer("models-max"));
  if (pool.models == 0) pool.models = std::numeric_limits<std::size_t>::max();
  require_models(served, pool, presets);
  return pool;
}

// What Ollama's clients are shown of a name of `leq create`.
void show_modelfile(const Modelfile& file, HostOptions& host) {
  host.modelfile = modelfile_text(file);
  host.parameters = parameters_text(file);
}

// Returns a loader of the pool's files, like -m. `host`: options for every model.
ModelLoader pool_loader(const Options& options, const Served& served, const Presets& presets,
                        const HostOptions& host, std::uint64_t memory_bytes) {
  ModelLoader loader;
  loader.plan = [=](const fs::path& file) {
    std::uint64_t bytes = 0;
    if (!served.files) return bytes;  // nothing is unloaded for the only model
    with_model_files(with_model(options, served, presets, file), [&](const Options& one) {
      bytes = planned_bytes(one, server_limits(one), memory_bytes);
      return 0;
    });
    return bytes;
  };
  loader.load = [=](const fs::path& file) {
    RunnableModel runnable;
    runnable.options = host;
    with_model_files(with_model(options, served, presets, file), [&](const Options& one) {
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
  loader.settings = [=](const std::string& name, const Model& model) {
    const auto file = find_created(name);
    require(file.has_value(), printable(name), ": this name was removed");
    HostOptions own = host;
    Options one = presets.with(options, name);
    set_missing(*file, one);
    read_replies(one, own);
    read_sampling_of(one, model, own);
    show_modelfile(*file, own);
    return own;
  };
  return loader;
}

// Writes the line as a whole, because several threads write lines.
void note(const std::string& text) { std::cerr << "leq-server: " + text + '\n' << std::flush; }

int g_signal_pipe[2] = {-1, -1};

void on_signal(int) {
  const char byte = 0;
  if (write(g_signal_pipe[1], &byte, 1) < 0) _exit(1);
}

// Makes SIGTERM and SIGINT readable from a pipe, for signal_received.
void watch_signals() {
  require(pipe(g_signal_pipe) == 0, ErrorKind::io, "cannot make a pipe");
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool signal_received(int milliseconds) {
  pollfd waiting = {g_signal_pipe[0], POLLIN, 0};
  if (poll(&waiting, 1, milliseconds) <= 0) return false;
  char byte;
  return read(g_signal_pipe[0], &byte, 1) == 1;
}

// Fixes the malloc threshold above which freed blocks are returned to the system; by default,
// malloc raises it up to 32 MiB as blocks are freed.
void return_large_blocks() { system::return_freed_blocks(2 << 20); }

// Raises the limit of file descriptors to its maximum, because each connection needs one.
void raise_descriptor_limit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::string url_of(const ServerOptions& options, int port) {
  const std::string& host = options.http.host;
  const std::string name = host.find(':') != std::string::npos ? "[" + host + "]" : host;
  return (options.http.certificate.empty() ? "http://" : "https://") + name + ":" +
         std::to_string(port);
}

int serve(Server& server, double drain_seconds) {
  constexpr int kLookMilliseconds = 500;
  while (!signal_received(kLookMilliseconds)) {
    if (const auto failure = server.failure()) fail(ErrorKind::no_device, *failure);
  }
  note("shutting down: waiting up to " + fixed(drain_seconds, 0) +
       " s for running replies; signal again to stop now");
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  server.stop(drain_seconds);
  note("stopped");
  return 0;
}

void warn_of_address(const ServerOptions& wanted, int port) {
  if (!wanted.access.addresses || !wanted.access.keys.empty()) return;
  note("warning: no API key: anyone who can reach " + wanted.http.host + ":" +
       std::to_string(port) +
       " can use this server, and a web page that somebody opens there may try to (set "
       "--api-key)");
}

int serve_from(Server& server, const Options& options, const ServerOptions& wanted) {
  watch_signals();
  warn_of_address(wanted, server.port());
  note("listening on " + url_of(wanted, server.port()) + " (chat page and APIs)");
  return serve(server, options.real("drain"));
}

int run_with_one(const Options& options, ServerOptions wanted) {
  std::optional<std::filesystem::path> draft;
  if (options.given("model-draft")) draft = options.text("model-draft");
  const Runtime setup = set_up_model(options, server_limits(options), draft);
  finish_host_options(options, setup, wanted);
  Server server(*setup.model, *setup.session, wanted);
  const RunLimits& limits = setup.session->limits();
  if (!setup.note.empty()) note(with_flags(setup.note));
  if (options.flag("verbose")) {
    for (const auto& line : plan_lines(*setup.model, *setup.session)) note(line);
  }
  note(wanted.name + ": " +
       (limits.sequences == 1
            ? "one sequence at a time, " + with_commas(limits.context) + " tokens of context"
            : std::to_string(limits.sequences) + " parallel sequences share " +
                  with_commas(limits.context) + " tokens of context, each has up to " +
                  with_commas(limits.sequence_context)));
  return serve_from(server, options, wanted);
}

// Names at most so many models.
std::string models_line(const Served& served, std::uint64_t memory_bytes) {
  constexpr std::size_t kMaxNames = 8;
  std::vector<std::string> names;
  for (const ModelFile& file : served.files()) names.push_back(file.name);
  if (names.empty()) return served.place + ": no models yet; `leq pull Qwen/Qwen3-0.6B` adds one";
  const std::size_t count = names.size();
  names.resize(std::min(count, kMaxNames));
  return served.place + ": " + std::to_string(count) + (count == 1 ? " model, " : " models, ") +
         "loaded when a request names it, within " + human_bytes(memory_bytes) + ": " +
         join(names) + (count > kMaxNames ? ", ..." : "");
}

int run_with_pool(const Options& options, const Served& served, const ServerOptions& wanted) {
  const Presets presets = read_presets(options, wanted);
  const PoolOptions pool = pool_options(options, served, presets, wanted);
  Server server(pool, pool_loader(options, served, presets, wanted, pool.memory_bytes), wanted);
  if (served.files) note(models_line(served, pool.memory_bytes));
  return serve_from(server, options, wanted);
}

// `name`: that of the only model.
int run_with(const Options& options, const Served& served, const std::string& name = "") {
  require(!ranks_are_processes(rank_count(options), device_name(options)), "--tp ",
          options.integer("tp"),
          ": the server's ranks are threads of one process; start it without mpirun");
  ServerOptions wanted = read_server_options(options);
  wanted.say = [](const std::string& line) { note(with_flags(line)); };
  if (const auto created = settings_named(name)) show_modelfile(*created, wanted);
  raise_descriptor_limit();
  return_large_blocks();
  std::signal(SIGPIPE, SIG_IGN);  // a write to a closed connection must not end the server
  watch_mappings("leq-server", LostPages::read_zeros);
  if (served.files || options.given("sleep-idle-seconds")) {
    return run_with_pool(options, served, wanted);
  }
  for (const char* flag : {"pin", "models-preset"}) {
    require(!options.given(flag), "--", flag, " names models of --models-dir, and there is none");
  }
  return run_with_one(options, std::move(wanted));
}

// The folder of --models-dir.
Served served_folder(const Options& options) {
  const fs::path folder = options.text("models-dir");
  std::error_code error;
  require(fs::is_directory(folder, error), "--models-dir ",
          printable(options.text("models-dir"), 4096), ": expected a folder");
  return {folder.string(), [folder] { return models_in(folder); }};
}

// The name of `leq ls`, otherwise that of the file or folder that the user gave.
std::string shown_name_of(const fs::path& file, const std::string& given) {
  constexpr std::string_view kLatest = ":latest";  // Ollama's word for no tag
  if (settings_named(given)) {
    return given.ends_with(kLatest) ? given.substr(0, given.size() - kLatest.size()) : given;
  }
  const std::string path = given.ends_with('/') ? given.substr(0, given.size() - 1) : given;
  return listed_name(file).value_or(model_name_of(path));
}

std::string given_name(const Options& options) {
  if (options.given("hf-repo")) return options.text("hf-repo");
  return options.given("model") ? options.text("model") : options.positionals().front();
}

// Says what names with settings leave out where several models are served: what is fixed when a
// model is loaded, since all names of a file share the loaded model.
void note_left_out(const std::string& name, const Modelfile& file) {
  std::vector<std::string> left_out;
  for (const auto& [parameter, value] : file.parameters) {
    const std::string option = option_of_parameter(parameter);
    const bool of_loading = option == "ctx-size" || option == "threads" || option == "batch-size";
    if (of_loading) left_out.push_back(parameter);
  }
  if (left_out.empty()) return;
  note(name + ": without its " + join(left_out) +
       ": these apply where it is served alone, and names of one file share the loaded model");
}

// The models of several names; the first is -m, the default.
Served served_names(Options& options) {
  std::vector<ModelFile> files;
  for (bool first = true; !options.positionals().empty(); first = false) {
    const std::string given = options.take_positional();
    const auto created = settings_named(given);
    const fs::path path = fs::absolute(model_by_name(created ? created->from : given, options));
    const std::string name = shown_name_of(path, given);
    if (created) note_left_out(name, *created);
    if (first) {
      options.set_text("model", path.string());
      require(!created || !options.given("alias"), "-a: ", given, " has a name; `leq cp ", given,
              " NAME` gives it another one");
      if (!options.given("alias")) options.set_text("alias", name);
    }
    require(std::ranges::find(files, name, &ModelFile::name) == files.end(), printable(name),
            ": two models of this name");
    files.push_back(created ? named_by_settings(name, path) : model_file(name, path));
  }
  return {"the command line", [files] { return files; }};
}

// All of `leq ls`.
Served served_all() {
  for (const KeptModel& created : created_models()) {
    try {
      const Modelfile file = load_modelfile(created.path);
      if (file_of_created(created)) {
        note_left_out(created.name, file);
      } else {
        note(created.name + ": not served, since no file of " + printable(file.from, 4096) +
             " is here; `leq serve " + created.name + "` makes it");
      }
    } catch (const Error& error) {
      note(std::string(error.what()) + "; not served");
    }
  }
  return {"`leq ls`", all_models};
}

int run_by_names(const Options& given) {
  Options options = given;
  const bool named = options.given("model") || options.given("hf-repo");
  const bool folder = options.given("models-dir");
  require(!options.given("hf-repo") || !folder,
          "-hf and --models-dir contradict each other: leave one out");
  require(options.positionals().empty() || !(named || folder), "unexpected argument '",
          options.positionals().empty() ? "" : printable(options.positionals().front()),
          "' beside -m, -hf or --models-dir");
  if (folder) return run_with(options, served_folder(options));
  if (!named && options.positionals().empty()) return run_with(options, served_all());
  if (options.positionals().size() > 1) return run_with(options, served_names(options));
  return with_model_files(options, [given = given_name(options)](const Options& found) {
    Options one = found;
    if (!one.given("alias")) one.set_text("alias", shown_name_of(one.text("model"), given));
    return run_with(one, {}, given);
  });
}

ToolSpec tool_spec() {
  ToolSpec spec = server_tool_spec();
  spec.answers.push_back(list_devices_answer());
  return spec;
}

}  // namespace
}  // namespace leq::server_tool

const leq::Tool leq::kServer = {"leq-server", leq::server_tool::tool_spec,
                                leq::server_tool::run_by_names};
