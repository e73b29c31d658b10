// leq: all tools in one program. `leq COMMAND ...` runs a command; called as leq-run, it is
// leq-run.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/table.h"
#include "base/text.h"
#include "format/leq_reader.h"
#include "hub/hub.h"
#include "hub/web_client.h"
#include "tools/common/mains.h"
#include "tools/common/options.h"
#include "tools/common/pull.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kAnyNumber = std::numeric_limits<std::size_t>::max();

// --- pull

ToolSpec pull_spec() {
  ToolSpec spec;
  spec.name = "leq pull";
  spec.summary = "downloads models, or updates them if the hub has newer ones";
  spec.usage = {"MODEL...", "Qwen/Qwen3-0.6B --recipe q4", "USER/REPOSITORY-GGUF:Q8_0"};
  spec.advice = std::string(kModelNames);
  spec.max_positionals = kAnyNumber;
  spec.options = download_options();
  return spec;
}

int pull(const Options& options) {
  require(!options.positionals().empty(), "expected a model's name, as Qwen/Qwen3-0.6B");
  for (const std::string& text : options.positionals()) {
    const auto name = parse_hub_name(text);
    require(name.has_value(), printable(text),
            ": is no name on the hub: expected USER/REPOSITORY or USER/REPOSITORY:TAG");
    const KeptModel model = pull_model(*name, options, true);
    std::cout << model.name << "  " << model.path.string() << '\n';
  }
  return 0;
}

// --- ls

// The type of most bytes.
std::string main_type(const LeqReader& file) {
  std::map<std::string, std::uint64_t> bytes;
  for (const StoredTensor& tensor : file.tensors()) {
    bytes[scheme_name(tensor.view.scheme)] += tensor.bytes();
  }
  const auto most =
      std::ranges::max_element(bytes, {}, [](const auto& type) { return type.second; });
  return most == bytes.end() ? "" : most->first;
}

// The KL divergence from the unquantized model, if it was measured when the file was made.
std::string measured_kl(const LeqReader& file) {
  const Json* provenance = file.metadata().find_given("provenance");
  const Json* gate = provenance == nullptr ? nullptr : provenance->find_given("gate");
  const Json* kl = gate == nullptr ? nullptr : gate->find_given("kl_mean");
  return kl != nullptr && kl->is_number() ? fixed(kl->get<double>(), 4) : "";
}

Json described(const KeptModel& model) {
  Json one = {{"name", model.name}, {"path", model.path.string()}};
  try {
    const LeqReader file(model.path, {.mode = LoadMode::map, .weights = false});
    one["bytes"] = file.file_bytes();
    one["type"] = main_type(file);
    one["kl"] = measured_kl(file);
    one["origin"] = origin_of(model.path);
  } catch (const Error& error) {
    one["error"] = std::string(error.what());
  }
  return one;
}

ToolSpec list_spec() {
  ToolSpec spec;
  spec.name = "leq ls";
  spec.summary = "lists the models of the models folder";
  spec.usage = {"", "--json"};
  spec.advice =
      "KL is the divergence from the unquantized model in nats, if it was measured (recipes "
      "measure it). The folder is LEQ_MODELS, or leq/models in XDG_DATA_HOME or ~/.local/share; "
      ".leq files that you put there are listed too.";
  spec.options = {{.name = "json", .help = "print JSON"}};
  return spec;
}

int list(const Options& options) {
  Json models = Json::array();
  for (const KeptModel& model : kept_models()) models.push_back(described(model));
  if (options.flag("json")) {
    std::cout << models.dump(2) << '\n';
    return 0;
  }
  if (models.empty()) {
    std::cerr << "leq ls: no models in " << models_folder().string()
              << "; `leq pull Qwen/Qwen3-0.6B` downloads one\n";
    return 0;
  }
  std::vector<std::vector<std::string>> rows = {{"NAME", "SIZE", "TYPE", "KL", "ORIGIN"}};
  for (const Json& model : models) {
    const std::string error = model.value("error", "");
    rows.push_back({model.at("name").text(),
                    error.empty() ? human_bytes(model.at("bytes").get<std::uint64_t>()) : "",
                    model.value("type", ""), model.value("kl", ""),
                    error.empty() ? model.value("origin", "") : printable(error, 200)});
  }
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    std::cout << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
  return 0;
}

// --- rm

ToolSpec remove_spec() {
  ToolSpec spec;
  spec.name = "leq rm";
  spec.summary = "removes models from the models folder";
  spec.usage = {"MODEL...", "MODEL --downloads"};
  spec.max_positionals = kAnyNumber;
  spec.options = {{.name = "downloads",
                   .help = "remove the repository from the hub's cache too, which other programs "
                           "may use"}};
  return spec;
}

// Throws Error if the name, without a tag, is that of several models.
void require_one(const std::string& name) {
  const auto hub = parse_hub_name(name);
  if (!hub || !hub->tag.empty()) return;
  std::vector<std::string> names;
  for (const KeptModel& model : kept_models()) {
    if (model.name.starts_with(hub->repository + ":")) names.push_back(model.name);
  }
  require(names.size() < 2, name, ": name one of them: ", join(names));
}

int remove(const Options& options) {
  require(!options.positionals().empty(), "expected a model's name; `leq ls` lists them");
  for (const std::string& name : options.positionals()) {
    const auto model = find_kept(name);
    require(model.has_value(), printable(name), ": no such model; `leq ls` lists the models");
    require_one(name);
    const std::string origin = origin_of(model->path);
    fs::remove(model->path);
    fs::remove(origin_file(model->path));
    std::cout << "removed " << model->name << '\n';
    if (origin.empty()) continue;
    const Hub hub(hub_settings());
    const fs::path folder = hub.folder(origin.substr(0, origin.find('@')));
    std::error_code error;
    if (!fs::exists(folder, error)) continue;
    if (options.flag("downloads")) {
      fs::remove_all(folder);
      std::cout << "removed " << folder.string() << '\n';
    } else {
      std::cerr << "the download is still in " << folder.string() << " (--downloads removes it)\n";
    }
  }
  return 0;
}

// --- ps

ToolSpec ps_spec() {
  ToolSpec spec;
  spec.name = "leq ps";
  spec.summary = "lists the models that a running server has loaded";
  spec.usage = {"", "--host 127.0.0.1 --port 8080"};
  spec.options = {{.name = "host",
                   .kind = OptionKind::text,
                   .value_name = "ADDRESS",
                   .fallback = "127.0.0.1",
                   .help = "address of the server"},
                  {.name = "port",
                   .kind = OptionKind::integer,
                   .value_name = "N",
                   .fallback = "8080",
                   .help = "its port",
                   .minimum = 1,
                   .maximum = 65535},
                  {.name = "api-key",
                   .kind = OptionKind::text,
                   .value_name = "KEY",
                   .help = "a key that it accepts"}};
  return spec;
}

int ps(const Options& options) {
  const std::string server =
      "http://" + options.text("host") + ":" + std::to_string(options.integer("port"));
  const std::string url = server + "/v1/models";
  WebRequest request = {.url = url, .proxies = false};
  if (options.given("api-key")) request.token = options.text("api-key");
  const WebResponse response = WebClient().send(request);
  require(response.failure.empty(), ErrorKind::io, server, ": ", response.failure,
          "; `leq serve` starts a server");
  require(response.status == 200, ErrorKind::io, url, ": HTTP ", response.status,
          response.status == 401 ? "; --api-key KEY" : "");
  const Json answer = parse_json(response.body, url);
  for (const Json& model : json_member(answer, "data", Json::Type::array, url)) {
    const Json* status = model.find_given("status");
    const std::string state = status == nullptr ? "" : status->value("value", "");
    if (state == "unloaded") continue;
    const Json* bytes = status == nullptr ? nullptr : status->find_given("memory_bytes");
    std::cout << printable(json_get<std::string>(model, "id", url), 200) << "  " << state
              << (bytes == nullptr ? "" : "  " + human_bytes(bytes->get<std::uint64_t>())) << '\n';
  }
  return 0;
}

int pull_main(int argc, char** argv) { return run_tool("leq pull", pull_spec, argc, argv, pull); }
int list_main(int argc, char** argv) { return run_tool("leq ls", list_spec, argc, argv, list); }
int remove_main(int argc, char** argv) {
  return run_tool("leq rm", remove_spec, argc, argv, remove);
}
int ps_main(int argc, char** argv) { return run_tool("leq ps", ps_spec, argc, argv, ps); }

struct Command {
  const char* name;
  const char* program;       // the name by which it is a tool of its own, or nullptr
  int (*main)(int, char**);  // nullptr: a program of the Python package
  const char* help;
};

int show_main(int argc, char** argv);

constexpr Command kCommands[] = {
    {"run", "leq-run", run_main, "run MODEL [PROMPT]      chat, or answer one question"},
    {"serve", "leq-server", server_main,
     "serve [MODEL...]        the APIs of OpenAI, Anthropic, Ollama; a chat page"},
    {"pull", nullptr, pull_main, "pull MODEL...           download models, or update them"},
    {"ls", nullptr, list_main, "ls                      list the models that are here"},
    {"rm", nullptr, remove_main, "rm MODEL...             remove models"},
    {"show", nullptr, show_main, "show MODEL              print what a model's file holds"},
    {"ps", nullptr, ps_main, "ps                      list the models that a server has loaded"},
    {"quantize", "leq-quantize", quantize_main, "quantize CHECKPOINT -o FILE"},
    {"perplexity", "leq-perplexity", perplexity_main, "perplexity MODEL -f FILE"},
    {"bench", "leq-bench", bench_main, "bench -m MODEL          measure speed"},
    {"inspect", "leq-inspect", inspect_main,
     "inspect FILE            contents, checksums, memory plan"},
    {"compare", "leq-compare", nullptr,
     "compare CHECKPOINT ...  compare methods (pip install leq[compare])"},
    {"export", "leq-export", nullptr,
     "export FILE ...         for other runtimes (pip install leq[export])"},
};

// Commands of other programs, and what to type here.
constexpr std::array<std::array<std::string_view, 2>, 9> kOtherWords = {{
    {"list", "use leq ls"},
    {"chat", "use leq run MODEL"},
    {"generate", "use leq run MODEL TEXT"},
    {"help", "use leq --help"},
    {"version", "use leq --version"},
    {"stop", "Ctrl-C ends leq serve; it unloads a model at POST /models/unload"},
    {"create", "use leq quantize HF_DIR -o model.leq"},
    {"cp", "a model is a file in the folder that leq ls names"},
    {"push", "models are files: hf upload publishes one"},
}};

ToolSpec leq_spec() {
  ToolSpec spec;
  spec.name = "leq";
  spec.summary = "runs language models: downloads, quantizes, chats and serves";
  for (const Command& command : kCommands) spec.usage.emplace_back(command.help);
  spec.advice = std::string(kModelNames) +
                " `leq COMMAND --help` lists the options of a command; `leq run` is also leq-run, "
                "and so on. Short names: " +
                join(short_names()) + ".";
  spec.max_positionals = kAnyNumber;  // an unknown command is the error, whatever follows
  return spec;
}

int explain(const Options& options) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  require(!options.positionals().empty(), "expected a command: ", join(names, " | "),
          "; see leq --help");
  const std::string& word = options.positionals().front();
  for (const auto& [other, advice] : kOtherWords) {
    require(word != other, "no command '", word, "'; ", advice);
  }
  const auto nearest = nearest_word(word, names);
  fail("no command '", printable(word), "'",
       nearest ? "; did you mean " + *nearest + "?" : "; see leq --help");
}

// Replaces this process by a program of the Python package.
int run_python_tool(const Command& command, int argc, char** argv) {
  std::vector<char*> words(argv, argv + argc);
  std::string program = command.program;
  words.front() = program.data();
  words.push_back(nullptr);
  ::execvp(command.program, words.data());
  std::fprintf(stderr,
               "leq: error: %s is not installed: it is part of the Python "
               "package: make wheel, then pip install 'dist/leq-VERSION.whl[%s]'\n",
               command.program, command.name);
  return 1;
}

// leq-inspect with a model's name in place of its file.
int show_main(int argc, char** argv) {
  std::vector<char*> words(argv, argv + argc);
  std::string file;
  std::error_code error;
  for (std::size_t i = 1; i < words.size() && file.empty(); ++i) {
    if (words[i][0] == '-' || std::filesystem::exists(words[i], error)) continue;
    if (const auto kept = find_kept(words[i])) {
      file = kept->path.string();
      words[i] = file.data();
    }
  }
  return inspect_main(argc, words.data());
}

int leq_main(int argc, char** argv) {
  const std::string program = std::filesystem::path(argc > 0 ? argv[0] : "leq").filename().string();
  const bool named = argc > 1 && program.find("leq-") == std::string::npos;
  for (const Command& command : kCommands) {
    if (command.main != nullptr && command.program != nullptr && program == command.program) {
      return command.main(argc, argv);
    }
    if (!named || std::string_view(argv[1]) != command.name) continue;
    return command.main != nullptr ? command.main(argc - 1, argv + 1)
                                   : run_python_tool(command, argc - 1, argv + 1);
  }
  return run_tool("leq", leq_spec, argc, argv, explain);
}

}  // namespace
}  // namespace leq

int main(int argc, char** argv) { return leq::leq_main(argc, argv); }
