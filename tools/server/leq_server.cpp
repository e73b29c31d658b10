// leq-server: a model behind the OpenAI API, and a page to chat with it.
#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <iostream>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "server/server.h"
#include "tools/common/model_file.h"
#include "tools/common/model_setup.h"
#include "tools/common/plan_lines.h"
#include "tools/common/rank_choice.h"
#include "tools/common/reply_options.h"
#include "tools/common/setting_flags.h"
#include "tools/server/options.h"

namespace leq::server_tool {
namespace {

void note(const std::string& text) { std::cerr << "leq-server: " << text << std::endl; }

int g_signal_pipe[2] = {-1, -1};

void on_signal(int) {
  const char byte = 0;
  if (write(g_signal_pipe[1], &byte, 1) < 0) _exit(1);
}

// From now on SIGTERM and SIGINT can be waited for.
void watch_signals() {
  require(pipe(g_signal_pipe) == 0, ErrorKind::io, "cannot make a pipe");
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a client that goes away is no reason to end
}

bool signal_came(int milliseconds) {
  pollfd waiting = {g_signal_pipe[0], POLLIN, 0};
  if (poll(&waiting, 1, milliseconds) <= 0) return false;
  char byte;
  return read(g_signal_pipe[0], &byte, 1) == 1;
}

// Blocks of large requests and replies go back to the system when they are freed, whatever was
// freed before: without this the limit moves up to 32 MiB.
void return_large_blocks() { mallopt(M_MMAP_THRESHOLD, 2 << 20); }

// Each connection takes a descriptor.
void raise_descriptor_limit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void finish_options(const Options& options, const ModelSetup& setup, ServerOptions& server) {
  server.sampling =
      choose_sampling(read_sampling(options), setup.model->generation().sampling).settings;
  server.engine.speculate = options.text("speculate") != "off" && options.integer("draft-max") > 0;
  server.engine.max_draft_tokens = options.integer("draft-max");
  server.engine.draft = setup.draft_session.get();
  server.say = [](const std::string& line) { note(with_flags(line)); };
}

std::string url_of(const ServerOptions& options, int port) {
  const std::string& host = options.http.host;
  const std::string name = host.find(':') != std::string::npos ? "[" + host + "]" : host;
  return (options.http.certificate.empty() ? "http://" : "https://") + name + ":" +
         std::to_string(port);
}

int serve(Server& server, double drain_seconds) {
  constexpr int kLookMilliseconds = 500;
  while (!signal_came(kLookMilliseconds)) {
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

RunLimits wanted_limits(const Options& options, RunLimits limits) {
  limits.context = options.integer("ctx-size");
  limits.sequences = static_cast<int>(options.integer("parallel"));
  // One may take what others do not need.
  limits.sequence_context = std::numeric_limits<std::int64_t>::max();
  const bool drafts = options.text("speculate") != "off" && options.integer("draft-max") > 0;
  const int drafting = options.given("model-draft") ? std::min(limits.sequences, 4) : 1;
  limits.output_tokens = limits.sequences + (drafts ? drafting * kMaxDraftTokens : 0);
  return limits;
}

int run_with(const Options& options) {
  require(!ranks_are_processes(options, rank_count(options)), "--tp ", options.integer("tp"),
          ": the server's ranks are threads of one process; start it without mpirun");
  ServerOptions wanted = read_server_options(options);
  std::optional<std::filesystem::path> draft;
  if (options.given("model-draft")) draft = options.text("model-draft");
  const ModelSetup setup = set_up_model(
      options, [&](const Model&, RunLimits& limits) { limits = wanted_limits(options, limits); },
      draft);
  finish_options(options, setup, wanted);
  raise_descriptor_limit();
  return_large_blocks();
  watch_signals();
  Server server(*setup.model, *setup.session, wanted);
  const RunLimits& limits = setup.session->limits();
  if (!setup.note.empty()) note(with_flags(setup.note));
  if (options.flag("verbose")) {
    for (const auto& line : plan_lines(*setup.model, *setup.session)) note(line);
  }
  if (!server.chat_error().empty()) {
    note("no chats, only completions: " + with_flags(server.chat_error()));
  }
  if (wanted.access.addresses && wanted.access.keys.empty()) {
    note("warning: no API key: anyone who can reach " + wanted.http.host + ":" +
         std::to_string(server.port()) +
         " can use this server, and a web page that somebody opens there may try to (set "
         "--api-key)");
  }
  note(setup.model->file().name() + ": " + std::to_string(limits.sequences) +
       " parallel sequences, " + with_commas(limits.context) + " tokens of context in total");
  note("listening on " + url_of(wanted, server.port()));
  return serve(server, options.real("drain"));
}

ToolSpec tool_spec() {
  ToolSpec spec = server_tool_spec();
  spec.answers.push_back(list_devices_answer());
  return spec;
}

}  // namespace
}  // namespace leq::server_tool

int main(int argc, char** argv) {
  return leq::run_tool("leq-server", leq::server_tool::tool_spec, argc, argv,
                       [](const leq::Options& options) {
                         return leq::with_model_files(options, leq::server_tool::run_with);
                       });
}
