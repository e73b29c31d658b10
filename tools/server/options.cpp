#include "tools/server/options.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "chat/chat_template.h"
#include "tools/common/llama_flags.h"
#include "tools/common/model_options.h"
#include "tools/common/pull.h"
#include "tools/common/typed_text.h"

namespace leq::server_tool {
namespace {

using Kind = OptionKind;

constexpr double kMaxSeconds = 1e6;
constexpr std::uint64_t kMaxKeyBytes = 1 << 20;

constexpr auto kNoted = ForeignUse::noted;
constexpr auto kRefused = ForeignUse::refused;

std::vector<ForeignOption> own_flags() {
  return {
      {.words = "-cb --cont-batching -nocb --no-cont-batching"},
      {.words = "--embedding --embeddings --cache-prompt --no-cache-prompt --props"},
      {.words = "--prefill-assistant --no-prefill-assistant"},
      {"--threads-http", kNoted, "does nothing: replies have a thread each, all who wait have one",
       1},
      {"--cache-reuse -sps --slot-prompt-similarity", kNoted,
       "does nothing: a prompt begins with the pages of the longest beginning that is there", 1},
      {"--grammar --grammar-file -j --json-schema -jf --json-schema-file", kRefused,
       "each request says it: response_format, json_schema or grammar"},
      {.words = "--rerank --reranking"},
      {"--path --api-prefix --media-path --webui-config --webui-config-file", kRefused,
       "the page and the paths are as docs/server.md has them; a proxy in front can change them",
       1},
      {"--num-ctx", kRefused,
       "-c N: the context that all sequences share, N = their number (-np) "
       "times the context of each"},
      {"--max-model-len", kRefused, "-c N: the context that all sequences share"},
      {"--max-num-seqs", kRefused, "-np N"},
      {"--served-model-name", kRefused, "-a NAME"},
      {"--tensor-parallel-size", kRefused, "--tp N"},
      {"--gpu-memory-utilization", kRefused, "--vram SIZE"},
      {"--dtype --quantization", kRefused, "the model's file says it; leq quantize makes another"},
      {.words = "--models-autoload"},
      {"--no-models-autoload", kNoted, "does nothing: a model is loaded when a request names it"},
  };
}

std::span<const ForeignOption> llama_server_flags() {
  static const std::vector<ForeignOption> kAll = [] {
    std::vector<ForeignOption> all = own_flags();
    for (const ForeignOption& option : llama_flags()) {
      if (!option.words.starts_with("--reasoning-budget ")) all.push_back(option);  // an option
    }
    return all;
  }();
  return kAll;
}

// Flags of llama-server's presets that belong to the whole server here.
std::span<const ForeignOption> preset_flags() {
  static const std::vector<ForeignOption> kAll = [] {
    const auto shared = llama_server_flags();
    std::vector<ForeignOption> all(shared.begin(), shared.end());
    all.push_back({"--device -dev --gpu-layers --n-gpu-layers -ngl", kNoted,
                   "does nothing: all models run on the device of the command line", 1});
    all.push_back({"--load-on-startup", kNoted, "does nothing: -m is loaded at the start", 1});
    return all;
  }();
  return kAll;
}

std::vector<Option> address_options() {
  return {
      {.name = "host",
       .kind = Kind::text,
       .value_name = "ADDRESS",
       .fallback = "127.0.0.1",
       .help = "address to listen on; 0.0.0.0: all network interfaces, to be used together with "
               "--api-key"},
      {.name = "port",
       .kind = Kind::integer,
       .value_name = "N",
       .fallback = "8080",
       .help = "port; 0: any free one, which is printed",
       .minimum = 0,
       .maximum = 65535},
      {.name = "alias",
       .spellings = "-a",
       .kind = Kind::text,
       .value_name = "NAME",
       .help = "the model's name for clients (default: the file's name)"},
      {.name = "ssl-cert-file",
       .kind = Kind::text,
       .value_name = "FILE",
       .help = "certificate in PEM format; enables HTTPS instead of HTTP"},
      {.name = "ssl-key-file",
       .kind = Kind::text,
       .value_name = "FILE",
       .help = "the private key of --ssl-cert-file"},
      {.name = "slot-save-path",
       .kind = Kind::text,
       .value_name = "DIR",
       .help = "folder for KV caches of processed texts: they are saved when the server stops and "
               "loaded at the next start, so that these texts need no second prefill; "
               "POST /slots/ID saves and restores there too"},
      {.name = "webui", .fallback = "true", .help = "do not serve the chat page under /"},
      {.name = "metrics",
       .fallback = "true",
       .help = "do not serve metrics for Prometheus under /metrics"},
      {.name = "slots", .fallback = "true", .help = "do not list running requests under /slots"},
      {.name = "log-requests",
       .help = "write a line per request to standard error: time, path, model, status, tokens of "
               "the prompt (in, cached) and of the reply, duration; no texts"},
  };
}

std::vector<Option> folder_options() {
  return {
      {.name = "models-dir",
       .kind = Kind::text,
       .value_name = "DIR",
       .help = "folder of .leq and GGUF files, of which a request's \"model\" selects one; each is "
               "loaded when it is first asked for. With -m, that file is the default. Without this "
               "and without a model, all models of `leq ls` are served so"},
      {.name = "models-preset",
       .kind = Kind::text,
       .value_name = "FILE",
       .help = "INI file with options of single models of --models-dir: a section [NAME] for each, "
               "[*] for all, lines as ctx-size = 8192. The command line takes precedence"},
      {.name = "models-memory",
       .kind = Kind::text,
       .value_name = "SIZE",
       .help = "maximum memory of all loaded models, as 16G; idle models are unloaded for others "
               "(default: 90 % of what the machine has free, or a GPU's memory)"},
      {.name = "models-max",
       .kind = Kind::integer,
       .value_name = "N",
       .fallback = "4",
       .help = "maximum number of loaded models; 0: any number",
       .minimum = 0,
       .maximum = 1024},
      {.name = "sleep-idle-seconds",
       .kind = Kind::list,
       .value_name = "[NAME=]N",
       .help = "unload a model after N seconds without requests, until its next request; -1: "
               "never; with NAME=: this model; may be given several times"},
      {.name = "pin",
       .kind = Kind::list,
       .value_name = "NAME",
       .help = "a model of --models-dir that stays loaded once it is; may be given several times"},
  };
}

std::vector<Option> access_options() {
  return {
      {.name = "api-key",
       .kind = Kind::list,
       .value_name = "KEY",
       .help = "a key that every request must contain; may be given several times"},
      {.name = "api-key-file",
       .kind = Kind::text,
       .value_name = "FILE",
       .help = "read keys from a file, one per line"},
      {.name = "cors-origin",
       .kind = Kind::list,
       .value_name = "ORIGIN",
       .help = "accept cross-origin requests of web pages from this site, such as "
               "https://example.org; * = all sites; may be given "
               "several times"},
      {.name = "allow-host",
       .kind = Kind::list,
       .value_name = "NAME",
       .help = "without --api-key: accept requests for this host name too; * = any name; may be "
               "given several times"},
  };
}

std::vector<Option> limit_options() {
  return {
      {.name = "max-queue",
       .kind = Kind::integer,
       .value_name = "N",
       .fallback = "64",
       .help = "maximum number of requests that wait for one of the -np sequences; further ones "
               "are refused",
       .minimum = 0,
       .maximum = 4096},
      {.name = "max-connections",
       .kind = Kind::integer,
       .value_name = "N",
       .fallback = "1024",
       .help = "maximum number of connections; a further one closes the connection that has been "
               "idle the longest",
       .minimum = 1,
       .maximum = 65536},
      {.name = "max-body",
       .kind = Kind::text,
       .value_name = "SIZE",
       .fallback = "16M",
       .help = "maximum size of a request"},
      {.name = "timeout",
       .spellings = "-to",
       .kind = Kind::real,
       .value_name = "SECONDS",
       .fallback = "30",
       .help = "time limit for a request to arrive, and for a client to read the next part of its "
               "reply",
       .minimum = 0.1,
       .maximum = kMaxSeconds},
      {.name = "reply-timeout",
       .kind = Kind::real,
       .value_name = "SECONDS",
       .fallback = "0",
       .help = "time limit of a reply; 0: none",
       .minimum = 0,
       .maximum = kMaxSeconds},
      {.name = "sse-ping-interval",
       .kind = Kind::real,
       .value_name = "SECONDS",
       .fallback = "15",
       .help = "interval at which a stream without new tokens sends a comment, so that proxies do "
               "not close it as idle; -1: no comments",
       .minimum = -1,
       .maximum = kMaxSeconds},
      {.name = "drain",
       .kind = Kind::real,
       .value_name = "SECONDS",
       .fallback = "30",
       .help = "time limit for running requests after SIGTERM or Ctrl-C",
       .minimum = 0,
       .maximum = kMaxSeconds},
  };
}

std::vector<Option> reply_options() {
  const auto names = ChatTemplate::names();
  return {
      {.name = "n-predict",
       .spellings = "-n --predict",
       .kind = Kind::integer,
       .value_name = "N",
       .fallback = "-1",
       .help =
           "maximum tokens of a reply if the request sets no limit; -1 = until the context is full",
       .minimum = -2,  // Ollama's word for the same
       .maximum = 1e9},
      {.name = "system-prompt",
       .spellings = "-sys",
       .kind = Kind::text,
       .value_name = "TEXT",
       .help = "system prompt of conversations that have none; \\n is a line break"},
      {.name = "reverse-prompt",
       .spellings = "-r",
       .kind = Kind::list,
       .value_name = "TEXT",
       .help = "stop before this text if the request names no text; may be given several times"},
      {.name = "chat-template",
       .kind = Kind::text,
       .value_name = "NAME",
       .help = "use this template instead of the model's own",
       .suggestions = {names.begin(), names.end()}},
      {.name = "enable-thinking",
       .kind = Kind::text,
       .value_name = "on|off",
       .fallback = "on",
       .help = "reasoning before the answer, for models that support it",
       .choices = {"on", "off"}},
      {.name = "reasoning-budget",
       .kind = Kind::integer,
       .value_name = "N",
       .fallback = "-1",
       .help =
           "maximum reasoning tokens if the request sets no limit; -1: no limit, 0: no reasoning",
       .minimum = -1,
       .maximum = 1e9},
      {.name = "reasoning-budget-message",
       .kind = Kind::text,
       .value_name = "TEXT",
       .help = "text that ends the reasoning when it reaches --reasoning-budget"},
      {.name = "pooling",
       .kind = Kind::text,
       .value_name = pooling_names("|"),
       .help = "how a text's hidden states become its embedding, instead of what the model's file "
               "says; rank: /v1/rerank asks the model for yes or no",
       .choices = {"mean", "last", "cls", "none", "rank"}},
  };
}

// Adapts shared options whose meaning differs in a server.
std::vector<Option> adapted(std::vector<Option> options) {
  for (Option& option : options) {
    if (option.name == "parallel") option.fallback = "4";
    if (option.name == "seed") {
      option.help =
          "seed of the random numbers if the request sets none; -1: a new one for each request";
    }
  }
  return options;
}

// Returns whether the text can be sent in an HTTP header.
bool is_key(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](char letter) { return letter > ' ' && letter < '\x7f'; });
}

std::vector<std::string> read_keys(const Options& options) {
  std::vector<std::string> keys = options.list("api-key");
  for (const std::string& key : keys)
    require(is_key(key), "--api-key: expected visible letters of ASCII");
  if (options.given("api-key-file")) {
    const std::string& path = options.text("api-key-file");
    const std::string text = read_text_file(path, kMaxKeyBytes);
    for (const std::string_view line : split(text, "\n")) {
      if (trim(line).empty()) continue;
      keys.emplace_back(trim(line));
      require(is_key(keys.back()), "--api-key-file ", path, ": key ", keys.size(),
              ": expected visible letters of ASCII");
    }
    require(!keys.empty(), "--api-key-file ", path, ": expected a key in each line, found none");
  }
  return keys;
}

void read_http(const Options& options, HttpOptions& http) {
  http.host = options.text("host");
  http.port = static_cast<int>(options.integer("port"));
  http.connections = static_cast<int>(options.integer("max-connections"));
  http.request_seconds = http.write_seconds = options.real("timeout");
  const auto body = parse_bytes(options.text("max-body"));
  require(body && *body > 0, "--max-body ", options.text("max-body"),
          ": expected a size as 16M or 512k");
  http.limits.body_bytes = *body;
  require(options.given("ssl-cert-file") == options.given("ssl-key-file"),
          "--ssl-cert-file and --ssl-key-file belong together: give both");
  if (options.given("ssl-cert-file")) {
    http.certificate = options.text("ssl-cert-file");
    http.key = options.text("ssl-key-file");
  }
}

}  // namespace

ToolSpec server_tool_spec() {
  ToolSpec spec;
  spec.name = "leq-server";
  spec.summary = "answers the APIs of OpenAI, Anthropic and Ollama, and serves a page to chat with";
  spec.advice = std::string(kModelNames);
  spec.foreign = llama_server_flags();
  spec.max_positionals = std::numeric_limits<std::size_t>::max();
  spec.usage = {"MODEL...                     (without MODEL: all of `leq ls`)", "-m model.leq",
                "-m model.leq -np 8 -c 32768 --host 0.0.0.0 --api-key KEY",
                "--models-dir models --models-memory 16G"};
  add_options(spec, adapted(model_options()));
  add_options(spec, hub_options());
  add_options(spec, in_group("Models", folder_options()));
  add_options(spec, in_group("Server", address_options()));
  add_options(spec, in_group("Access", access_options()));
  add_options(spec, in_group("Limits", limit_options()));
  add_options(spec, in_group("Replies", reply_options()));
  add_options(spec, speculation_options("Replies"));
  add_options(spec, adapted(sampling_options()));
  return spec;
}

ToolSpec model_preset_spec() {
  ToolSpec spec;
  spec.name = "leq-server";
  spec.foreign = preset_flags();
  add_options(spec, adapted(model_options({"model", "device", "gpu-layers", "tp", "vram"})));
  add_options(spec, reply_options());
  add_options(spec, speculation_options("Replies"));
  add_options(spec, adapted(sampling_options()));
  return spec;
}

void read_replies(const Options& options, HostOptions& host) {
  if (options.given("chat-template")) host.chat_template = options.text("chat-template");
  host.enable_thinking = options.text("enable-thinking") == "on";
  host.reasoning_tokens = options.integer("reasoning-budget");
  if (host.reasoning_tokens == 0) host.enable_thinking = false;
  if (options.given("reasoning-budget-message")) {
    host.reasoning_words = options.text("reasoning-budget-message");
  }
  if (options.given("pooling")) host.pooling = parse_pooling(options.text("pooling"));
  host.max_tokens = std::max<std::int64_t>(options.integer("n-predict"), -1);
  const auto text_of = [](const std::string& text, std::string_view flag) {
    std::string out = process_escapes(text);
    check_utf8(out, flag);
    return out;
  };
  host.system.clear();
  if (options.given("system-prompt")) host.system = text_of(options.text("system-prompt"), "-sys");
  host.stop.clear();
  for (const std::string& text : options.list("reverse-prompt")) {
    require(!text.empty(), "-r: expected some text, found none");
    host.stop.push_back(text_of(text, "-r"));
  }
  const std::int64_t seed = options.integer("seed");
  if (seed >= 0) host.seed = static_cast<std::uint64_t>(seed);
}

ServerOptions read_server_options(const Options& options) {
  ServerOptions server;
  read_http(options, server.http);
  server.access.keys = read_keys(options);
  server.access.origins = options.list("cors-origin");
  for (const std::string& origin : server.access.origins) {
    const std::size_t host = origin.find("://");
    require(origin == "*" || origin == "null" ||
                (host != std::string::npos && host > 0 && host + 3 < origin.size() &&
                 origin.find('/', host + 3) == std::string::npos),
            "--cors-origin ", printable(origin),
            ": expected * or a scheme and a host, as browsers send them: https://example.org");
  }
  allow_own_names(server.access, server.http.host);
  if (!server.access.hosts.empty()) {
    const auto& more = options.list("allow-host");
    server.access.hosts.insert(server.access.hosts.end(), more.begin(), more.end());
  }
  if (options.given("alias")) server.name = options.text("alias");
  read_replies(options, server);
  server.ping_seconds = options.real("sse-ping-interval");
  if (server.ping_seconds < 0) server.ping_seconds = kMaxSeconds;
  server.most_waiting = static_cast<std::size_t>(options.integer("max-queue"));
  if (options.real("reply-timeout") > 0) server.most_seconds = options.real("reply-timeout");
  if (options.given("slot-save-path")) {
    server.slot_folder = options.text("slot-save-path");
    std::error_code error;
    require(std::filesystem::is_directory(*server.slot_folder, error), "--slot-save-path ",
            printable(options.text("slot-save-path")), ": expected a folder; make it first");
  }
  server.with_page = options.flag("webui");
  server.with_metrics = options.flag("metrics");
  server.with_slots = options.flag("slots");
  server.logs_requests = options.flag("log-requests");
  return server;
}

}  // namespace leq::server_tool
