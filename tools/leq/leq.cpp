// leq: all tools in one program. `leq COMMAND ...` runs a command; called as leq-run, it is
// leq-run.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/table.h"
#include "base/text.h"
#include "format/gguf_source.h"
#include "format/leq_reader.h"
#include "hub/hub.h"
#include "hub/web_client.h"
#include "model/open_model.h"
#include "quantize/run/quantize.h"
#include "runtime/model_files.h"
#include "sampling/settings.h"
#include "tools/common/mains.h"
#include "tools/common/model_file.h"
#include "tools/common/modelfile.h"
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
    if (!name) refuse_known_name(text);
    require(name.has_value(), "'", printable(text),
            "': is no name on the hub: expected USER/REPOSITORY or USER/REPOSITORY:TAG");
    const KeptModel model = pull_model(*name, options, true);
    std::cout << model.name << "  " << model.path.string() << '\n';
  }
  return 0;
}

// --- ls

// The KL divergence from the unquantized model, if it was measured when the file was made.
std::optional<double> measured_kl(const LeqReader& file) {
  const Json* provenance = file.metadata().find_given("provenance");
  const Json* gate = provenance == nullptr ? nullptr : provenance->find_given("gate");
  const Json* kl = gate == nullptr ? nullptr : gate->find_given("kl_mean");
  return kl != nullptr && kl->is_number() ? std::optional(kl->get<double>()) : std::nullopt;
}

// A GGUF file is called as its conversion is, and has its own size.
Json described(const KeptModel& model) {
  Json one = {{"name", model.name}, {"path", model.path.string()}};
  try {
    std::optional<NamelessFile> outline;
    std::uint64_t gguf_bytes = 0;
    if (model.path.extension() == ".gguf") {
      const GgufSource source(model.path);
      for (const fs::path& part : source.paths()) gguf_bytes += fs::file_size(part);
      outline.emplace(outline_of(model.path, kDefaultType));
    }
    const LeqReader file(outline ? fs::path(outline->path()) : model.path,
                         {.mode = LoadMode::map, .weights = false});
    one["bytes"] = outline ? gguf_bytes : file.file_bytes();
    one["type"] = stored_type(file);
    if (const auto kl = measured_kl(file)) one["kl"] = *kl;
    std::string origin = outline                               ? "GGUF file"
                         : !converted_from(model.path).empty() ? "conversion of a GGUF file"
                                                               : origin_of(model.path);
    if (origin.starts_with('/')) origin.resize(origin.rfind('@'));  // a folder's path is enough
    one["origin"] = origin;
  } catch (const Error& error) {
    one["error"] = std::string(error.what());
  }
  return one;
}

// A name that `leq create` made: what it stands for, and what it sets.
Json described_name(const KeptModel& model) {
  Json one = {{"name", model.name}, {"path", model.path.string()}};
  try {
    const Modelfile file = load_modelfile(model.path);
    std::vector<std::string> own;
    if (!file.system.empty()) own.emplace_back("system");
    for (const auto& [name, value] : file.parameters) own.push_back(name + ' ' + value);
    one["origin"] = file.from + (own.empty() ? "" : " with " + join(own));
  } catch (const Error& error) {
    one["error"] = std::string(error.what());
  }
  return one;
}

// The short names, a default before the other sizes of its family.
int list_names(bool json) {
  Json names = Json::array();
  Table table;
  std::string_view family;
  for (const ShortName& known : short_names()) {
    const bool first = known.family() != family;
    family = known.family();
    names.push_back({{"name", std::string(known.name)},
                     {"repository", std::string(known.repository)},
                     {"default", first},
                     {"gated", known.gated()}});
    std::vector<std::string> remarks;
    if (first) remarks.push_back("also " + std::string(family));
    if (known.gated()) remarks.emplace_back("gated");
    table.add({{"NAME", std::string(known.name)},
               {"REPOSITORY", std::string(known.repository)},
               {"NOTE", join(remarks)}});
  }
  if (json) {
    std::cout << names.dump(2) << '\n';
    return 0;
  }
  std::cout << table.text();
  std::cerr << "Every other repository has the name USER/REPOSITORY. Gated: accept the conditions "
               "on its page on the hub, and set HF_TOKEN.\n";
  return 0;
}

ToolSpec list_spec() {
  ToolSpec spec;
  spec.name = "leq ls";
  spec.summary = "lists the models that are here";
  spec.usage = {"", "--json"};
  spec.advice =
      "The folder is LEQ_MODELS, or leq/models in XDG_DATA_HOME or ~/.local/share; .leq and GGUF "
      "files that you put there are listed too, and the conversions of GGUF files elsewhere that "
      "were run, which `leq rm` removes without touching the GGUF file. Every command and the "
      "server take these names, in any case and with .leq or .gguf; a tag (:q4) may be left out, "
      "and then the newest is meant. KL, shown if a model has it, is the divergence from the "
      "unquantized model in nats, which recipes measure.";
  spec.options = {{.name = "json", .help = "print JSON"},
                  {.name = "names", .help = "list the short names and their repositories"}};
  return spec;
}

int list(const Options& options) {
  if (options.flag("names")) return list_names(options.flag("json"));
  Json models = Json::array();
  for (const KeptModel& model : created_models()) models.push_back(described_name(model));
  for (const KeptModel& model : listed_models()) models.push_back(described(model));
  if (options.flag("json")) {
    std::cout << models.dump_any(2) << '\n';
    return 0;
  }
  if (models.empty()) {
    std::cerr << "leq ls: no models in " << models_folder().string()
              << "; `leq pull Qwen/Qwen3-0.6B` downloads one\n";
    return 0;
  }
  const auto is_measured = [](const Json& model) { return model.contains("kl"); };
  const bool measured = std::ranges::any_of(models, is_measured);
  Table table;
  for (const Json& model : models) {
    const std::string error = model.value("error", "");
    const Json* bytes = model.find_given("bytes");
    Row row = {{"NAME", model.at("name").text()},
               {"SIZE", bytes == nullptr ? "" : human_bytes(bytes->get<std::uint64_t>())},
               {"TYPE", model.value("type", "")}};
    if (measured) row.emplace_back("KL", Cell());
    if (is_measured(model)) row.back().second = Cell(model.at("kl").get<double>(), 4);
    row.emplace_back("ORIGIN", error.empty() ? model.value("origin", "") : error);
    table.add(row);
  }
  std::cout << table.text();
  return 0;
}

// --- rm

ToolSpec remove_spec() {
  ToolSpec spec;
  spec.name = "leq rm";
  spec.summary = "removes models that `leq ls` lists";
  spec.usage = {"MODEL...", "MODEL --downloads"};
  spec.max_positionals = kAnyNumber;
  spec.options = {{.name = "downloads",
                   .help = "remove the repository from the hub's cache too, which other programs "
                           "may use"}};
  static const std::vector<ForeignOption> kForeign = {{.words = "-f --force -y --yes"}};
  spec.foreign = kForeign;
  return spec;
}

// The model that is removed. Throws Error if the name is that of none or of several.
KeptModel only_model(const std::string& name) {
  const std::vector<KeptModel> found = models_named(name);
  require(!found.empty(), printable(name), ": no such model; `leq ls` lists the models");
  std::vector<std::string> names;
  for (const KeptModel& model : found) names.push_back(model.name);
  std::ranges::sort(names);
  require(found.size() == 1, printable(name), ": name one of them: ", join(names));
  return found.front();
}

// All files of a model; the parts of a GGUF file by their names, as it may be damaged.
std::vector<fs::path> files_of(const fs::path& model) {
  if (model.extension() != ".gguf") return {model, origin_file(model)};
  std::vector<fs::path> files;
  const std::string own = model.filename().string();
  for (const auto& entry : fs::directory_iterator(model.parent_path())) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".gguf") && gguf_path(name).same_model(gguf_path(own))) {
      files.push_back(entry.path());
    }
  }
  try {
    files.push_back(conversion_of(model, conversion_cache()));
  } catch (const Error&) {  // it cannot be read, and has no conversion
  }
  return files;
}

// The names of `leq create` that stand for a model.
std::vector<std::string> names_for(const fs::path& model) {
  std::vector<std::string> names;
  for (const KeptModel& created : created_models()) {
    try {
      std::error_code error;
      const std::string from = path_of_model(load_modelfile(created.path).from);
      if (fs::equivalent(from, model, error)) names.push_back(created.name);
    } catch (const Error&) {  // it cannot be read, and stands for nothing
    }
  }
  return names;
}

int remove(const Options& options) {
  require(!options.positionals().empty(), "expected a model's name; `leq ls` lists them");
  for (const std::string& name : options.positionals()) {
    if (find_created(name)) {
      fs::remove(created_path(name));
      std::cout << "removed " << name << '\n';
      continue;
    }
    const KeptModel model = only_model(name);
    const std::string origin = origin_of(model.path);
    const std::vector<std::string> names = names_for(model.path);
    for (const fs::path& file : files_of(model.path)) fs::remove(file);
    std::cout << "removed " << model.name << '\n';
    if (!names.empty()) {
      std::cerr << "names that stand for it, which `leq rm` removes too: " << join(names) << '\n';
    }
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
  spec.usage = {"", "--host 127.0.0.1 --port 8080", "--host https://example.org --port 443"};
  spec.options = {
      {.name = "host",
       .kind = OptionKind::text,
       .value_name = "ADDRESS",
       .fallback = "127.0.0.1",
       .help = "address of the server, with https:// before it if it has a certificate"},
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
  const std::string& host = options.text("host");
  const std::string server = (host.find("://") == host.npos ? "http://" : "") + host + ":" +
                             std::to_string(options.integer("port"));
  const std::string url = server + "/v1/models";
  WebRequest request = {.url = url, .proxies = false};
  if (options.given("api-key")) request.token = options.text("api-key");
  const WebResponse response = WebClient().send(request);
  require(response.failure.empty(), ErrorKind::io, server, ": ", response.failure,
          "; `leq serve` starts a server, --port N asks at another port");
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

// --- show

struct ShownPart {
  const char *name, *help;
  bool reads_file;  // also of a name of `leq create`
  std::string (*text)(const Modelfile& file, const std::string& chat_template);
};
constexpr ShownPart kShownParts[] = {
    {"modelfile", "print the Modelfile: model, system prompt, parameters", false,
     [](const Modelfile& file, const std::string&) { return modelfile_text(file); }},
    {"parameters", "print the parameters", false,
     [](const Modelfile& file, const std::string&) { return parameters_text(file); }},
    {"system", "print the system prompt", false,
     [](const Modelfile& file, const std::string&) { return file.system; }},
    {"template", "print the chat template", true,
     [](const Modelfile&, const std::string& chat_template) { return chat_template; }},
};

ToolSpec show_spec() {
  ToolSpec spec = kInspect.spec();
  spec.name = "leq show";
  spec.usage.insert(spec.usage.begin(), "Qwen/Qwen3-0.6B                  (also what is not here)");
  spec.usage.push_back("NAME --modelfile                  (or another part)");
  for (const ShownPart& part : kShownParts) {
    spec.options.push_back({.name = part.name, .help = part.help, .group = "Parts"});
  }
  static const std::vector<ForeignOption> kForeign = {
      {.words = "--license",
       .use = ForeignUse::refused,
       .text = "a model's file has no licence; `leq show USER/REPOSITORY` has what the hub says"}};
  spec.foreign = kForeign;
  return spec;
}

// One part of a name of `leq create`, or of a model, whose parameters are those of its file.
int show_part(const ShownPart& part, const std::string& name) {
  const auto created = settings_named(name);
  Modelfile file = created ? *created : Modelfile{.from = name, .system = ""};
  std::string chat_template;
  if (!created || part.reads_file) {
    const std::string path = path_of_model(file.from);
    std::optional<NamelessFile> outline;
    if (is_checkpoint(path) || begins_as_gguf_file(path)) {
      outline.emplace(outline_of(path, kDefaultType));
    } else {
      check_model_file("", path);
    }
    const Model model(outline ? outline->path() : path, {.mode = LoadMode::map, .weights = false});
    chat_template = model.chat_template();
    for (const SamplingParameter& parameter : kSamplingParameters) {
      const auto value = model.generation().sampling[parameter.name];
      if (value && !created)
        file.parameters.emplace_back(name_of_parameter(parameter), number_text(*value));
    }
  }
  const std::string text = part.text(file, chat_template);
  std::cout << text << (text.empty() || text.ends_with('\n') ? "" : "\n");
  return 0;
}

// What the hub has under a name of which nothing is here.
int show_on_hub(const HubName& name, bool as_json) {
  HubEvents events;
  events.say = [](const std::string& line) { std::cerr << line << '\n'; };
  Hub hub(hub_settings(), events);
  const HubRepository repository = hub.list(name.repository, name.revision);
  const HubChoice choice = choose_files(repository, name.tag, "");
  std::uint64_t bytes = 0;
  for (const HubFile& file : choice.files) bytes += file.bytes;
  Json files = Json::array();
  Table table;
  for (const HubFile& file : repository.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}});
    table.add({{"file", file.name}, {"size", human_bytes(file.bytes)}});
  }
  if (as_json) {
    std::cout << Json({{"repository", repository.name},
                       {"commit", repository.commit},
                       {"license", repository.license},
                       {"download_bytes", bytes},
                       {"files", files}})
                     .dump(2)
              << '\n';
    return 0;
  }
  const std::string whole = name.place() + (name.tag.empty() ? "" : ":" + name.tag);
  std::cout << whole << ": on the hub, not here; `leq pull " << whole << "` downloads it\n"
            << "commit    " << repository.commit << "\nlicense   "
            << (repository.license.empty() ? "not given" : repository.license) << "\ndownload  "
            << human_bytes(bytes) << " in " << choice.files.size()
            << (choice.files.size() == 1 ? " file" : " files") << ", "
            << (choice.gguf.empty()
                    ? "quantized to " + (choice.tag.empty() ? kDefaultType : choice.tag) +
                          " unless it is quantized already"
                    : choice.tag + ", converted with its own numbers")
            << "\n\n"
            << table.text();
  return 0;
}

int show(const Options& options) {
  const std::string name = options.positionals().empty() ? "" : options.positionals().front();
  std::error_code error;
  const ShownPart* shown = nullptr;
  for (const ShownPart& part : kShownParts) {
    if (!options.flag(part.name)) continue;
    require(shown == nullptr, "--", part.name, " beside --", shown == nullptr ? "" : shown->name,
            ": one part at a time");
    shown = &part;
  }
  if (shown != nullptr) {
    require(!name.empty(), kNoModel);
    return show_part(*shown, name);
  }
  if (name.empty() || fs::exists(name, error)) return kInspect.body(options);
  if (const auto created = find_created(name)) {
    std::cout << modelfile_text(*created);
    return 0;
  }
  if (find_kept(name)) return kInspect.body(options);
  if (is_on_hub(name)) return show_on_hub(*parse_hub_name(name), options.flag("json"));
  return kInspect.body(options);
}

// --- create and cp

ToolSpec create_spec() {
  ToolSpec spec;
  spec.name = "leq create";
  spec.summary = "makes a name for a model with a system prompt and parameters";
  spec.usage = {"NAME -f Modelfile"};
  spec.advice =
      "The file has the form of Ollama's Modelfile: FROM MODEL (any name or path of a model), "
      "SYSTEM TEXT, PARAMETER NAME VALUE. Nothing is downloaded or copied: `leq run NAME` runs "
      "MODEL with these settings, `leq serve` has it as a model of this name, and flags win over "
      "them.";
  spec.max_positionals = 1;
  spec.options = {{.name = "file",
                   .spellings = "-f",
                   .kind = OptionKind::text,
                   .value_name = "FILE",
                   .fallback = "Modelfile",
                   .help = "the Modelfile"}};
  static const std::vector<ForeignOption> kForeign = {
      {.words = "-q --quantize",
       .use = ForeignUse::refused,
       .text =
           "`leq quantize CHECKPOINT -o model.leq --recipe q4` makes a file, which FROM names"}};
  spec.foreign = kForeign;
  return spec;
}

void write_created(const std::string& name, const Modelfile& file) {
  require(!find_kept(name), printable(name), ": is the name of a model; take another one");
  const fs::path path = created_path(name);
  fs::create_directories(path.parent_path());
  const std::string text = modelfile_text(file);
  AtomicFile written(path);
  written.append(std::as_bytes(std::span(text)));
  written.commit();
}

// Throws Error naming the place if leq-run does not take the value.
void check_parameter(const std::string& name, const std::string& value, const std::string& place) {
  const std::string flag = "--" + option_of_parameter(name);
  try {
    (void)parse_options(kRun.spec(), std::array{flag + '=' + value},
                        [](const std::string&) { return std::nullopt; });
  } catch (const Error& error) {
    std::string reason = error.what();
    if (reason.starts_with(flag + ": ")) reason.erase(0, flag.size() + 2);
    fail(place, ": PARAMETER ", name, ": ", reason);
  }
}

int create(const Options& options) {
  require(!options.positionals().empty(), "expected a name: leq create NAME -f Modelfile");
  const std::string& name = options.positionals().front();
  const fs::path path = options.text("file");
  Modelfile file = load_modelfile(path);
  for (const std::string& note : file.notes) std::cerr << note << '\n';
  for (std::size_t i = 0; i < file.parameters.size(); ++i) {
    const auto& [name_of_one, value] = file.parameters[i];
    check_parameter(name_of_one, value, file.places[i]);
  }
  std::error_code error;
  const fs::path beside = fs::absolute(path).parent_path() / file.from;
  const bool is_path = fs::exists(beside, error);
  if (is_path) {
    file.from = fs::canonical(beside).string();
  } else if (const auto base = find_created(file.from)) {  // which may be removed later
    file.from = base->from;
    if (file.system.empty()) file.system = base->system;
    for (const auto& own : base->parameters) {
      const bool again = std::ranges::any_of(
          file.parameters, [&](const auto& one) { return one.first == own.first; });
      if (!again) file.parameters.push_back(own);
    }
  } else {
    const bool known = find_kept(file.from) || is_on_hub(file.from);
    if (!known) refuse_known_name(file.from);
    require(known, path.string(), ": FROM ", printable(file.from, 4096),
            ": no file or model of this name");
  }
  write_created(name, file);
  std::cout << "created " << name << "; `leq run " << name << "` runs " << file.from << '\n';
  return 0;
}

ToolSpec copy_spec() {
  ToolSpec spec;
  spec.name = "leq cp";
  spec.summary = "gives a model or a name of `leq create` another name";
  spec.usage = {"MODEL NAME", "model.leq NAME"};
  spec.max_positionals = 2;
  return spec;
}

int copy(const Options& options) {
  require(options.positionals().size() == 2, "expected two names: leq cp MODEL NAME");
  const std::string& model = options.positionals()[0];
  const std::string& name = options.positionals()[1];
  Modelfile file = {.from = model, .system = ""};
  std::error_code error;
  if (fs::is_regular_file(model, error) || is_checkpoint(model)) {
    if (!is_checkpoint(model) && !begins_as_gguf_file(model)) check_model_file("", model);
    file.from = fs::canonical(model).string();
  } else if (const auto created = find_created(model)) {
    file = *created;
  } else {
    const auto kept = find_kept(model);
    require(kept.has_value(), printable(model),
            ": no such model or file; `leq ls` lists the models");
    file.from = kept->name;
  }
  write_created(name, file);
  std::cout << name << " is " << file.from << " too\n";
  return 0;
}

constexpr Tool kShow = {"leq show", show_spec, show};
constexpr Tool kPull = {"leq pull", pull_spec, pull};
constexpr Tool kList = {"leq ls", list_spec, list};
constexpr Tool kRemove = {"leq rm", remove_spec, remove};
constexpr Tool kPs = {"leq ps", ps_spec, ps};
constexpr Tool kCreate = {"leq create", create_spec, create};
constexpr Tool kCopy = {"leq cp", copy_spec, copy};

struct Command {
  std::string_view name;
  const Tool* tool;  // nullptr: a program of the Python package
  const char* help;
  std::string_view variables = {};  // of a program of the Python package, those that no tool has
};

constexpr Command kCommands[] = {
    {"run", &kRun, "run MODEL [PROMPT]      chat, or answer one question"},
    {"serve", &kServer,
     "serve [MODEL...]        the APIs of OpenAI, Anthropic, Ollama; a chat page"},
    {"pull", &kPull, "pull MODEL...           download models, or update them"},
    {"ls", &kList, "ls                      list the models that are here"},
    {"rm", &kRemove, "rm MODEL...             remove models"},
    {"show", &kShow, "show MODEL              print what a file holds, or the hub has"},
    {"create", &kCreate, "create NAME -f FILE     a model with settings (Modelfile)"},
    {"cp", &kCopy, "cp MODEL NAME           another name for a model"},
    {"ps", &kPs, "ps                      list the models that a server has loaded"},
    {"quantize", &kQuantize, "quantize CHECKPOINT -o FILE"},
    {"perplexity", &kPerplexity, "perplexity MODEL -f FILE"},
    {"bench", &kBench, "bench MODEL             measure speed"},
    {"inspect", &kInspect, "inspect FILE            contents, checksums, memory plan"},
    {"compare", nullptr, "compare CHECKPOINT ...  compare methods (Python package)",
     "AGAIN CALIBRATION_WINDOWS CHOICES CONTEXTS INPUTS KEEP_FILES METHODS PARTS QUESTIONS QUICK"},
    {"export", nullptr, "export FILE ...         for other runtimes (Python package)",
     "COMPRESSED_TENSORS INPUTS OPSET PAST SAFETENSORS TARGET TOKENS"},
};

std::vector<std::string> all_variables() {
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (command.tool != nullptr) {
      for (auto& name : variables_of(command.tool->spec())) names.push_back(std::move(name));
      continue;
    }
    for (const auto word : split(command.variables, " ")) {
      names.push_back("LEQ_ARG_" + std::string(word));
    }
  }
  return names;
}

struct OtherWord {
  std::string_view word, here;
};
// Commands of other programs that mean the same.
constexpr std::array<OtherWord, 7> kSynonyms = {{{"list", "ls"},
                                                 {"server", "serve"},
                                                 {"chat", "run"},
                                                 {"download", "pull"},
                                                 {"remove", "rm"},
                                                 {"delete", "rm"},
                                                 {"ppl", "perplexity"}}};
// Others, and what to type here.
constexpr std::array<OtherWord, 7> kAdvice = {{
    {"generate", "leq run MODEL TEXT answers, and with --raw completes"},
    {"version", "leq --version prints it"},
    {"stop",
     "nothing runs in the background: Ctrl-C ends `leq serve` in its terminal, `systemctl "
     "stop leq-server` the service; --sleep-idle-seconds unloads models"},
    {"push", "models are files: hf upload publishes one"},
    {"signin", "set HF_TOKEN, or run hf auth login"},
    {"login", "set HF_TOKEN, or run hf auth login"},
    {"update", "leq pull MODEL updates a model"},
}};

ToolSpec leq_spec() {
  ToolSpec spec;
  spec.name = "leq";
  spec.summary = "runs language models: downloads, quantizes, chats and serves";
  for (const Command& command : kCommands) {
    spec.usage.emplace_back(command.help);
    if (command.tool == nullptr) continue;
    spec.commands.push_back(command.tool->spec());
    spec.commands.back().name = "leq " + std::string(command.name);
  }
  spec.advice = std::string(kModelNames) +
                " `leq COMMAND --help` lists the options of a command; `leq run` is also leq-run, "
                "and so on; `leq ls --names` lists the short names.";
  static const std::vector<ForeignOption> kForeign = {
      {.words = "-m --model -hf -hfr --hf-repo -p --prompt -cnv",
       .use = ForeignUse::refused,
       .text = "a command comes first: leq run -m FILE, leq serve -m FILE"}};
  spec.foreign = kForeign;
  spec.max_positionals = kAnyNumber;  // an unknown command is the error, whatever follows
  return spec;
}

// Called for words that are no command.
int explain(const Options& options) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  for (const OtherWord& other : kSynonyms) names.emplace_back(other.word);
  const std::string& word = options.positionals().front();
  for (const auto& [other, advice] : kAdvice) {
    require(word != other, "no command '", word, "': ", advice);
  }
  std::error_code error;
  const bool is_model = fs::is_regular_file(word, error) || is_checkpoint(word) ||
                        find_kept(word) || find_created(word) || parse_hub_name(word);
  require(!is_model, "no command '", printable(word, 4096), "': a model is run by `leq run ",
          printable(word, 4096), "`");
  const auto nearest = nearest_word(word, names);
  fail("no command '", printable(word), "'",
       nearest ? "; did you mean " + *nearest + "?" : "; see leq --help");
}

// The file or folder for a program of the Python package in place of a model's name.
std::string path_for(const Command& command, const std::string& name, const Options& options) {
  if (command.name == "compare") return checkpoint_by_name(name);
  std::error_code error;
  return fs::exists(name, error) ? name : model_by_name(name, options);
}

// A program beside this one (a virtual environment that is not active), else one on PATH.
std::string program_beside(const std::string& name) {
  std::error_code error;
  const fs::path own = fs::read_symlink("/proc/self/exe", error).parent_path() / name;
  return !error && fs::exists(own, error) ? own.string() : name;
}

// Replaces this process by a program of the Python package.
int run_python_tool(const Command& command, const std::vector<char*>& words) {
  const std::string name = "leq-" + std::string(command.name);
  ToolSpec spec = pull_spec();
  spec.name = "leq " + std::string(command.name);
  const auto run = [&](const Options& options) -> int {
    std::vector<std::string> texts(words.begin(), words.end());
    texts.front() = name;
    if (texts.size() > 1 && !texts[1].starts_with('-')) {
      texts[1] = path_for(command, texts[1], options);
    }
    std::vector<char*> arguments;
    for (std::string& text : texts) arguments.push_back(text.data());
    arguments.push_back(nullptr);
    ::execvp(program_beside(name).c_str(), arguments.data());
    const int reason = errno;
    fail(ErrorKind::io, name, reason == ENOENT ? " is not installed" : ": ",
         reason == ENOENT ? "" : std::strerror(reason),
         "; it is part of the Python package: in a clone of leq `make python` installs it, "
         "elsewhere `pipx install 'leq-*.whl[",
         command.name, "]'` with the wheel of this release (docs/python.md)");
  };
  return run_tool(spec, 1, words.data(), run);
}

int leq_main(int argc, char** argv) {
  // Without memory of its own, because errors are reported from run_tool on.
  std::string_view program = argc > 0 ? argv[0] : "leq";
  program.remove_prefix(program.rfind('/') + 1);
  for (const Command& command : kCommands) {
    if (command.tool != nullptr && program == command.tool->name) {
      return run_tool(*command.tool, argc, argv, all_variables);
    }
  }
  std::string word = argc > 1 ? argv[1] : "help";
  std::vector<char*> words(argv + std::min(argc, 1), argv + argc);  // begin with the command
  std::string help = "--help";
  const bool asks_help = word == "help" && words.size() > 1;
  if (asks_help) {  // `leq help run` is `leq run --help`
    std::swap(words[0], words[1]);
    word = words[0];
    words = {words[0], help.data()};
  }
  for (const auto& [other, here] : kSynonyms) {
    if (word == other) word = here;
  }
  const int count = static_cast<int>(words.size());
  for (const Command& command : kCommands) {
    if (word != command.name) continue;
    return command.tool != nullptr ? run_tool(*command.tool, count, words.data(), all_variables)
                                   : run_python_tool(command, words);
  }
  if (asks_help) words.pop_back();  // the error is that of the word
  if (word == "help") words = {word.data(), help.data()};
  words.insert(words.begin(), word.data());
  return run_tool({"leq", leq_spec, explain}, static_cast<int>(words.size()), words.data(),
                  all_variables);
}

}  // namespace
}  // namespace leq

int main(int argc, char** argv) { return leq::leq_main(argc, argv); }
