// leq-server: serves models through the OpenAI API, with a chat page.
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <iostream>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/mapping_watch.h"
#include "base/system.h"
#include "base/text.h"
#include "runtime/runtime.h"
#include "server/server.h"
#include "tools/common/device_choice.h"
#include "tools/common/mains.h"
#include "tools/common/model_file.h"
#include "tools/common/model_setup.h"
#include "tools/common/pull.h"
#include "tools/common/setting_flags.h"
#include "tools/server/models.h"
#include "tools/server/options.h"

namespace leq::server_tool {
namespace {

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
  note("listening on " + url_of(wanted, server.port()));
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
  note(setup.model->file().name() + ": " + std::to_string(limits.sequences) +
       " parallel sequences, " + with_commas(limits.context) + " tokens of context in total");
  return serve_from(server, options, wanted);
}

int run_with_pool(const Options& options, const ServerOptions& wanted) {
  const Presets presets = read_presets(options, wanted);
  const PoolOptions pool = pool_options(options, presets, wanted);
  Server server(pool, pool_loader(options, presets, wanted, pool.memory_bytes), wanted);
  if (!pool.folder.empty()) {
    note(pool.folder.string() + ": " + std::to_string(server.models().list().size()) +
         " models, loaded on demand within " + human_bytes(pool.memory_bytes));
  }
  return serve_from(server, options, wanted);
}

int run_with(const Options& options) {
  require(!ranks_are_processes(rank_count(options), device_name(options)), "--tp ",
          options.integer("tp"),
          ": the server's ranks are threads of one process; start it without mpirun");
  ServerOptions wanted = read_server_options(options);
  wanted.say = [](const std::string& line) { note(with_flags(line)); };
  raise_descriptor_limit();
  return_large_blocks();
  std::signal(SIGPIPE, SIG_IGN);  // a write to a closed connection must not end the server
  watch_mappings("leq-server", LostPages::read_zeros);
  const bool has_pool = options.given("models-dir") || options.given("sleep-idle-seconds");
  if (has_pool) return run_with_pool(options, wanted);
  for (const char* name : {"pin", "models-preset"}) {
    require(!options.given(name), "--", name, " names models of --models-dir, and there is none");
  }
  return run_with_one(options, std::move(wanted));
}

// Several names, or none: the models folder is served, and the first name is the default.
void serve_folder(Options& options) {
  const std::filesystem::path folder = models_folder();
  require(
      !options.positionals().empty() || !kept_models().empty(),
      "no model: give one as `leq serve Qwen/Qwen3-0.6B` or -m model.leq, or a folder of models "
      "as --models-dir DIR (",
      folder.string(), " has none)");
  for (bool first = true; !options.positionals().empty(); first = false) {
    const std::string name = options.take_positional();
    const std::filesystem::path file = model_by_name(name, options);
    require(file.parent_path() == folder, printable(name), ": several models are served from one ",
            "folder, and this file is not in ", folder.string(), "; use --models-dir DIR");
    if (first) options.set_text("model", file.string());
  }
  options.set_text("models-dir", folder.string());
}

int run_by_names(const Options& given) {
  Options options = given;
  const bool named = options.given("model") || options.given("hf-repo");
  require(!options.given("hf-repo") || !options.given("models-dir"),
          "-hf and --models-dir contradict each other: leave one out");
  if (!options.given("models-dir") && !named && options.positionals().size() != 1) {
    serve_folder(options);
  }
  require(options.positionals().empty() || !(named || options.given("models-dir")),
          "unexpected argument '",
          options.positionals().empty() ? "" : printable(options.positionals().front()),
          "' beside -m, -hf or --models-dir");
  if (options.given("models-dir")) return run_with(options);
  if (!options.given("alias") && !named) options.set_text("alias", options.positionals().front());
  return with_model_files(options, run_with);
}

ToolSpec tool_spec() {
  ToolSpec spec = server_tool_spec();
  spec.answers.push_back(list_devices_answer());
  return spec;
}

}  // namespace
}  // namespace leq::server_tool

int leq::server_main(int argc, char** argv) {
  return run_tool("leq-server", server_tool::tool_spec, argc, argv, server_tool::run_by_names);
}
