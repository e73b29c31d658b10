#include "tools/common/pull.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>

#include "base/ascii.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "convert/import.h"
#include "hub/arrivals.h"
#include "quantize/run/quantize.h"
#include "runtime/model_files.h"
#include "tools/common/model_file.h"
#include "tools/common/modelfile.h"
#include "tools/common/setting_flags.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKeptTag = "kept";  // a checkpoint that is quantized already
constexpr std::string_view kDefaultGguf = "Q4_K_M";
constexpr std::uint64_t kMaxOriginBytes = 64u << 10;

// A GGUF model of a repository: one file, or the first of its parts.
struct GgufModel {
  HubFile file;
  std::string label;  // its tag: the type, or of all but the first of a type the whole name
};

// The type at the end of a GGUF model's name, "Q4_K_M" of "a-Q4_K_M"; the whole name if it ends
// with no type.
std::string type_label(const std::string& name) {
  const auto at = name.find_last_of("-.");
  const std::string end = at == name.npos ? name : name.substr(at + 1);
  const bool is_type = end.size() > 1 &&
                       std::string_view("QIFBTMqifbtm").find(end[0]) != std::string_view::npos &&
                       std::ranges::any_of(end, [](unsigned char c) { return std::isdigit(c); });
  return is_type ? end : name;
}

std::vector<GgufModel> gguf_models(const HubRepository& repository) {
  std::vector<GgufModel> found;
  for (const HubFile& file : repository.files) {
    const std::string name = fs::path(file.name).filename().string();
    const GgufPath path = gguf_path(name);
    if (!name.ends_with(".gguf") || !path.is_first() || name.find("mmproj") != name.npos ||
        name.find("imatrix") != name.npos) {
      continue;
    }
    const std::string whole(path.model), type = type_label(whole);
    const bool taken = std::ranges::any_of(
        found, [&](const GgufModel& other) { return same_ignoring_case(other.label, type); });
    found.push_back({file, taken ? whole : type});
  }
  return found;
}

HubChoice gguf_choice(const HubRepository& repository, const GgufModel& model) {
  HubChoice choice = {.gguf = model.file.name, .tag = model.label};
  for (const HubFile& file : repository.files) {
    if (file.name.ends_with(".gguf") &&
        gguf_path(file.name).same_model(gguf_path(model.file.name))) {
      choice.files.push_back(file);
    }
  }
  return choice;
}

// Whether the file belongs to a module of sentence-transformers: "1_Pooling/config.json",
// "2_Dense/model.safetensors".
bool is_of_module(std::string_view name) {
  return name >= "0" && name < ":" && std::ranges::count(name, '/') == 1 &&
         (name.ends_with("/config.json") || name.ends_with("/model.safetensors"));
}

// Ends of the names of a checkpoint's files.
bool is_of_checkpoint(std::string_view name) {
  constexpr std::array<std::string_view, 6> kEndings = {".json", ".safetensors", ".model",
                                                        ".txt",  ".tiktoken",    ".jinja"};
  return std::ranges::any_of(kEndings,
                             [&](std::string_view ending) { return name.ends_with(ending); });
}

// The files of a checkpoint: those of the repository's own folder that readers look for, and those
// of its modules. A copy of the weights in another program's form is left out.
HubChoice checkpoint_choice(const HubRepository& repository) {
  HubChoice choice;
  for (const HubFile& file : repository.files) {
    const bool inside = file.name.find('/') != file.name.npos;
    if (!is_of_checkpoint(file.name) || (inside && !is_of_module(file.name))) continue;
    if (file.name.starts_with("consolidated")) continue;
    choice.files.push_back(file);
  }
  return choice;
}

// Whether the file has weights that are read as they arrive; a module's are read at once.
bool is_weights(const HubFile& file) {
  return file.name.ends_with(".safetensors") && file.name.find('/') == file.name.npos;
}

// Lines and a progress line on stderr, from several threads. The line shows a download, and other
// work when there is none.
class Screen {
 public:
  void say(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (line_) line_->clear();
    std::cerr << text << '\n';
  }
  void update(std::string_view work, std::int64_t done, std::int64_t total, const char* unit) {
    const std::lock_guard lock(mutex_);
    if (work != work_) {
      if (line_ && work_ == kDownloading) return;
      line_.reset();
      work_ = work;
    }
    if (!line_) line_.emplace(work_, total, unit);
    line_->update(done);
    if (done != total) return;
    line_->clear();
    line_.reset();
  }
  HubEvents hub_events() {
    HubEvents events;
    events.say = [this](const std::string& text) { say(text); };
    events.progress = [this](std::uint64_t done, std::uint64_t total) {
      update(kDownloading, static_cast<std::int64_t>(done), static_cast<std::int64_t>(total),
             "bytes");
    };
    return events;
  }

 private:
  static constexpr std::string_view kDownloading = "downloading";
  std::mutex mutex_;
  std::optional<Progress> line_;
  std::string work_;
};

// Sets what a tag of a checkpoint says: a recipe, or a type without calibration.
void choose_quantization(const std::string& tag, const fs::path& folder, QuantizeOptions& job) {
  job.keeps_types = tag == kKeptTag;
  if (job.keeps_types) return;
  const Recipe* const recipe = find_recipe(tag);
  if (recipe == nullptr) {
    job.type = tag;
    return;
  }
  apply_recipe(*recipe, import_config(folder), job);
  job.fit_windows = recipe->fits_windows();
  job.measure = true;
  job.gate_text = built_in_gate_text();
}

// Throws Error before a download if the tag names no quantization.
void check_tag(const std::string& repository, const std::string& tag) {
  const Recipe* const recipe = find_recipe(tag);
  if (recipe == nullptr ? tag == kKeptTag || parse_scheme(tag).has_value() : !recipe->searches) {
    return;
  }
  std::vector<std::string> names;
  for (const Recipe& known : recipes()) {
    if (!known.searches) names.push_back(known.name);
  }
  fail(repository, ": '", printable(tag), "' is no GGUF file of it, and no quantization of its ",
       "checkpoint: expected ", join(names, " | "), ", or a type as int8-g128, q4_k or bf16");
}

// A repository's files of one model, of which those that are small are downloaded at first.
struct Download {
  Screen screen = {};
  Hub hub;
  HubRepository repository;
  HubChoice choice;
  std::filesystem::path path;  // a checkpoint folder, or a GGUF file

  // Throws Error, also if leq does not run the checkpoint's architecture.
  Download(const HubName& name, const std::string& tag, const std::string& file)
      : hub(hub_settings(), screen.hub_events()),
        repository(hub.list(name.repository, name.revision)),
        choice(choose_files(repository, tag, file)),
        path(choice.gguf.empty() ? hub.snapshot(repository)
                                 : hub.snapshot(repository) / choice.gguf) {
    if (is_gguf()) return;
    std::vector<HubFile> small;
    std::ranges::copy_if(choice.files, std::back_inserter(small),
                         [](const HubFile& one) { return !is_weights(one); });
    (void)import_config(hub.fetch(repository, small));
  }
  bool is_gguf() const { return !choice.gguf.empty(); }
  // Whether the checkpoint has floats; its small files say so.
  bool has_floats() const { return !is_gguf() && !says_quantized(path); }
  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const HubFile& one : choice.files) sum += one.bytes;
    return sum;
  }
  // Downloads what is missing. Throws Error, also if there is no space for it and the model.
  void fetch(Arrivals* arrivals = nullptr) {
    hub.fetch(repository, choice.files, has_floats() ? bytes() / 16 * 9 : bytes(), arrivals);
  }
};

void check_space(const KeptModel& kept, std::uint64_t bytes) {
  std::error_code unknown;
  const fs::path folder = kept.path.parent_path();
  const fs::space_info space = fs::space(folder, unknown);
  require(unknown || bytes <= space.available, ErrorKind::io, kept.name, ": takes about ",
          human_bytes(bytes), ", and only ", human_bytes(space.available), " are free in ",
          folder.string(), "; free some space, or set LEQ_MODELS to a folder on another disk");
}

// `folder_or_file`: the checkpoint, of which what has not arrived is waited for.
void quantize_to(const fs::path& folder_or_file, const std::string& tag, const KeptModel& kept,
                 Screen& screen, Arrivals* arrivals = nullptr) {
  QuantizeOptions job;
  job.arriving = arrivals;
  choose_quantization(tag, folder_or_file, job);
  const bool calibrates = job.recipe != nullptr && job.recipe->fits_windows();
  std::uint64_t bytes = 0;
  {
    const ImportedModel model = import_checkpoint(folder_or_file, arrivals);
    QuantizeOptions sized = job;
    if (sized.keeps_types) keep_types(model, sized);
    bytes = least_bytes(model, sized).all;
    screen.say(start_line((job.keeps_types ? "converting " : "quantizing ") + kept.name, bytes,
                          rounding_seconds(model, sized),
                          calibrates        ? "and up to 3 min of calibration before"
                          : arrivals        ? "while it is downloaded, without calibration text"
                          : job.keeps_types ? ""
                                            : "without calibration text (--recipe q8 and q4 "
                                              "calibrate, for minutes)"));
  }
  check_space(kept, bytes);
  const Stopwatch watch;
  job.say = [&](const std::string& text) { screen.say(with_flags(text)); };
  job.progress = [&](std::string_view work, std::int64_t done, std::int64_t total, const auto&) {
    screen.update(work, done, total, work == "gate" ? "windows" : "steps");
  };
  quantize_checkpoint(folder_or_file, kept.path, job);
  screen.say((job.keeps_types ? "converted " : "quantized ") + kept.name + ": " +
             human_bytes(fs::file_size(kept.path)) + " in " + fixed(watch.seconds(), 1) + " s");
}

// Downloads in a thread, and quantizes what has arrived.
void quantize_arriving(Download& download, const std::string& tag, const KeptModel& kept) {
  Arrivals arrivals(download.hub.missing(download.repository, download.choice.files));
  std::thread thread([&] {
    try {
      download.fetch(&arrivals);
    } catch (...) {
      arrivals.set_failed(std::current_exception());
    }
  });
  std::exception_ptr failure;
  try {
    quantize_to(download.path, tag, kept, download.screen, &arrivals);
  } catch (...) {
    failure = std::current_exception();
    if (!arrivals.restarted()) arrivals.give_up();
  }
  thread.join();
  if (!failure) return;
  if (!arrivals.restarted()) std::rethrow_exception(failure);
  download.fetch();
  quantize_to(download.path, tag, kept, download.screen);
}

// What a model of the models folder is made of.
struct Origin {
  std::string repository, commit;
  std::string file = "";  // the GGUF file; empty: a checkpoint

  bool operator==(const Origin&) const = default;
};

// nullopt if the model was not made, or the file that says of what is damaged.
std::optional<Origin> read_origin(const fs::path& model) try {
  const fs::path path = origin_file(model);
  if (!file_exists(path)) return std::nullopt;
  const std::string source = path.string();
  const Json json = parse_json(read_file(path, kMaxOriginBytes), source);
  return Origin{json_get<std::string>(json, "repository", source),
                json_get<std::string>(json, "commit", source),
                json_get_or<std::string>(json, "file", "", source)};
} catch (const Error&) {
  return std::nullopt;
}

// Makes the model with `make` if its file is missing or of another origin.
void make_kept(const KeptModel& model, const Origin& origin, const std::function<void()>& make) {
  const FileLock lock(
      model.path.parent_path() / ".locks" / (model.path.filename().string() + ".lock"),
      [&] { std::cerr << model.name << ": another program makes it; waiting\n"; });
  if (file_exists(model.path) && read_origin(model.path) == origin) return;
  make();
  AtomicFile written(origin_file(model.path));
  const Json json = {
      {"repository", origin.repository}, {"commit", origin.commit}, {"file", origin.file}};
  const std::string text = json.dump() + "\n";
  written.append(std::as_bytes(std::span(text)));
  written.commit();
}

// The repository and commit of a snapshot in the hub's cache, models--ORG--NAME/snapshots/COMMIT,
// otherwise the folder and a hash of its files' names, sizes and times.
Origin origin_of_folder(const fs::path& folder) {
  constexpr std::string_view kHubFolder = "models--";
  constexpr std::size_t kVersionDigits = 16;
  const std::string hub = folder.parent_path().parent_path().filename().string();
  if (folder.parent_path().filename() == "snapshots" && hub.starts_with(kHubFolder)) {
    return {replace_all(hub.substr(kHubFolder.size()), "--", "/"), folder.filename().string()};
  }
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || !is_of_checkpoint(name)) continue;
    const auto changed =
        static_cast<std::int64_t>(entry.last_write_time().time_since_epoch().count());
    files.insert(name + '\n' + std::to_string(entry.file_size()) + '\n' + std::to_string(changed) +
                 '\n');
  }
  std::string all;
  for (const std::string& file : files) all += file;
  return {folder.string(), sha256_hex(all).substr(0, kVersionDigits)};
}

// The name of a folder's models without a tag: its own, with a hash of its path behind it if a
// model of this name and tag is made of something else.
KeptModel kept_of_folder(const fs::path& folder, const std::string& tag) {
  constexpr std::size_t kPathDigits = 8;
  std::string name = replace_all(folder.filename().string(), "--", "-");
  const fs::path file = kept_file(name, tag);
  const auto origin = read_origin(file);
  if (file_exists(file) && !(origin && origin->repository == folder.string())) {
    name += "-" + sha256_hex(folder.string()).substr(0, kPathDigits);
  }
  return {name + ":" + tag, kept_file(name, tag)};
}

// The name of a snapshot's models: its repository's, with the commit if a model of this name and
// tag is made of something else.
KeptModel kept_of_snapshot(const Origin& origin, const std::string& tag) {
  HubName name = {.repository = origin.repository};
  const fs::path file = kept_file(name.place(), tag);
  if (file_exists(file) && read_origin(file) != origin) name.revision = origin.commit;
  return {name.place() + ":" + tag, kept_file(name.place(), tag)};
}

std::string tag_of(const HubName& name, const Options& options) {
  if (!options.given("recipe")) return name.tag;
  require(name.tag.empty(), "--recipe ", options.text("recipe"), " and the tag '", name.tag,
          "' say the same thing: leave one out");
  return options.text("recipe");
}

}  // namespace

std::vector<Option> download_options() {
  return in_group(
      "Hugging Face hub",
      {{.name = "recipe",
        .kind = OptionKind::text,
        .value_name = "NAME",
        .help = "how a downloaded checkpoint is quantized: q8 or q4 calibrate for minutes, a type "
                "as int8-g128, q4_k or bf16 does not (default int8-g128)",
        .suggestions = {"q8", "q6", "q5", "q4", "q4-small", "int8-g128", "q4_k", "bf16"}},
       {.name = "hf-file",
        .spellings = "-hff",
        .kind = OptionKind::text,
        .value_name = "FILE",
        .help = "the GGUF file of the repository"},
       {.name = "hf-token",
        .spellings = "-hft",
        .kind = OptionKind::text,
        .value_name = "TOKEN",
        .help = "token for private and gated repositories (default: HF_TOKEN, or that of `hf auth "
                "login`)"},
       {.name = "offline", .help = "download nothing"}});
}

std::vector<Option> hub_options() {
  std::vector<Option> options = in_group(
      "Hugging Face hub",
      {{.name = "hf-repo",
        .spellings = "-hf -hfr",
        .kind = OptionKind::text,
        .value_name = "REPOSITORY[:TAG]",
        .help = "instead of -m: a repository of GGUF files (TAG: the type, default Q4_K_M) or "
                "safetensors (TAG: as --recipe), downloaded once"}});
  for (Option& option : download_options()) options.push_back(std::move(option));
  return options;
}

HubChoice choose_files(const HubRepository& repository, const std::string& tag,
                       const std::string& file) {
  const std::vector<GgufModel> models = gguf_models(repository);
  HubChoice checkpoint = checkpoint_choice(repository);
  const bool has_checkpoint = std::ranges::any_of(checkpoint.files, is_weights);
  if (tag.empty() && file.empty() && has_checkpoint) return checkpoint;
  const std::string wanted = tag.empty() && file.empty() ? std::string(kDefaultGguf) : tag;
  for (const GgufModel& model : models) {
    if (file.empty() ? same_ignoring_case(model.label, wanted) : model.file.name == file) {
      return gguf_choice(repository, model);
    }
  }
  if (file.empty() && has_checkpoint) {
    check_tag(repository.name, tag);
    checkpoint.tag = tag;
    return checkpoint;
  }
  const std::string has =
      repository.name + (repository.cached ? ": what was downloaded of it has " : ": has ");
  const std::string rest =
      repository.cached ? "; `leq pull` downloads the rest when the hub can be reached" : "";
  require(!models.empty(), has, "neither *.safetensors in its own folder nor GGUF files", rest);
  if (tag.empty() && file.empty()) return gguf_choice(repository, models.front());
  std::vector<std::string> labels;
  for (const GgufModel& model : models) {
    labels.push_back(file.empty() ? model.label : model.file.name);
  }
  fail(has, "no GGUF file ", file.empty() ? tag : file, "; it has ", join(labels), rest);
}

std::string start_line(const std::string& what, std::uint64_t bytes, double core_seconds,
                       const std::string& more) {
  const int cores = usable_cores();
  return what + ", once: " + human_bytes(bytes) + ", " +
         expected_time(core_seconds / cores, slowdown_by_others(cores)) +
         (more.empty() ? "" : ", " + more);
}

fs::path origin_file(const fs::path& file) { return fs::path(file.string() + ".origin"); }

std::string origin_of(const fs::path& file) {
  const auto origin = read_origin(file);
  return origin ? origin->repository + "@" + origin->commit : "";
}

KeptModel pull_model(const HubName& name, const Options& options, bool update) {
  if (options.given("hf-token")) ::setenv("HF_TOKEN", options.text("hf-token").c_str(), 1);
  if (options.flag("offline")) ::setenv("HF_HUB_OFFLINE", "1", 1);
  const std::string tag = tag_of(name, options);
  const std::string file = options.given("hf-file") ? options.text("hf-file") : "";
  if (!update) {
    const std::string known = name.place() + (tag.empty() ? "" : ":" + tag);
    for (const KeptModel& kept : models_named(known)) {
      const auto origin = read_origin(kept.path);
      if (file.empty() || (origin && origin->file == file)) return kept;
    }
  }
  if (!name.family.empty()) {
    const std::vector<std::string> sizes = sizes_of(name.family);
    std::cerr << name.family << ": " << sizes.front() << ", " << name.repository
              << (sizes.size() > 1 ? "; there are " + join(sizes) : "") << '\n';
  }
  Download download(name, tag, file);
  const HubRepository& repository = download.repository;
  const HubChoice& choice = download.choice;
  const bool has_floats = download.has_floats();
  if (choice.tag.empty() && !has_floats) download.fetch();
  const std::string kept_tag = !choice.tag.empty()                         ? choice.tag
                               : !has_floats && holds_codes(download.path) ? kKeptTag
                                                                           : kDefaultType;
  const KeptModel model = {name.place() + ":" + kept_tag, kept_file(name.place(), kept_tag)};
  make_kept(model, {repository.name, repository.commit, choice.gguf}, [&] {
    const std::vector<HubFile> missing = download.hub.missing(repository, choice.files);
    const bool sizes_known =
        std::ranges::none_of(missing, [](const HubFile& one) { return one.bytes == 0; });
    if (has_floats && find_recipe(kept_tag) == nullptr && !missing.empty() && sizes_known) {
      quantize_arriving(download, kept_tag, model);
    } else {
      download.fetch();
      quantize_to(download.path, choice.gguf.empty() ? kept_tag : kKeptTag, model, download.screen);
    }
  });
  return model;
}

bool is_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  return !folder.empty() && fs::exists(folder / "config.json", ignored);
}

KeptModel keep_checkpoint(const fs::path& given, const Options& options) {
  const fs::path folder = fs::canonical(given);
  const bool chosen = options.declares("recipe") && options.given("recipe");
  if (chosen) check_tag(folder.string(), options.text("recipe"));
  const Origin origin = origin_of_folder(folder);
  std::optional<KeptModel> newest;  // is used without a recipe, as of a repository without a tag
  for (const KeptModel& model : kept_models()) {
    if (chosen || read_origin(model.path) != origin) continue;
    if (!newest || fs::last_write_time(model.path) > fs::last_write_time(newest->path)) {
      newest = model;
    }
  }
  if (newest) return *newest;
  const std::string tag = chosen                ? options.text("recipe")
                          : holds_codes(folder) ? kKeptTag
                                                : kDefaultType;
  const KeptModel model = origin.repository == folder.string() ? kept_of_folder(folder, tag)
                                                               : kept_of_snapshot(origin, tag);
  make_kept(model, origin, [&] {
    Screen screen;
    quantize_to(folder, tag, model, screen);
  });
  return model;
}

std::string checkpoint_by_name(const std::string& name) {
  std::error_code error;
  if (fs::exists(name, error)) return name;
  if (!is_on_hub(name)) return path_of_model(name);
  const HubName hub = *parse_hub_name(name);
  Download download(hub, hub.tag, "");
  download.fetch();
  return download.path.string();
}

std::optional<std::string> model_here(const std::string& name, const Options& options) {
  const std::string path = path_of_model(name);
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  if (is_checkpoint(path)) return path;
  for (const std::string flag : {"recipe", "hf-file"}) {
    if (!options.declares(flag) || !options.given(flag) || options.from_environment(flag)) continue;
    fail("--", flag, ' ', options.text(flag), ": is for models of the hub and folders of ",
         "safetensors, and ", printable(name, 4096), " is a file with a type of its own: leave ",
         "the flag out",
         name.ends_with(".gguf") && flag == "recipe"
             ? "; `leq quantize " + name + " -o NEW.leq --recipe " + options.text(flag) +
                   "` makes another file"
             : "");
  }
  return path;
}

std::string model_by_name(const std::string& name, const Options& options) {
  std::error_code error;
  const bool chosen = options.given("recipe") || options.given("hf-file");
  const bool on_hub = !fs::exists(name, error) && is_on_hub(name);
  if (!chosen || !on_hub) {
    if (const auto here = model_here(name, options)) {
      return is_checkpoint(*here) ? keep_checkpoint(*here, options).path.string() : *here;
    }
  }
  if (on_hub) return pull_model(*parse_hub_name(name), options, false).path.string();
  refuse_known_name(name);
  const bool is_path = name.starts_with('/') || name.starts_with("./") || name.ends_with(".gguf") ||
                       name.ends_with(".leq");
  if (is_path) check_model_file("", name);  // says that it is missing
  std::vector<std::string> known;
  for (const ShortName& one : short_names()) {
    known.emplace_back(one.family());
    known.emplace_back(one.name);
  }
  for (const auto& models : {listed_models(), created_models()}) {
    for (const KeptModel& model : models) known.push_back(model.name);
  }
  const auto longer = std::ranges::find_if(
      known, [&](const std::string& one) { return !name.empty() && one.starts_with(name); });
  const auto nearest =
      longer == known.end() ? nearest_word(name, known) : std::optional<std::string>(*longer);
  fail(ErrorKind::io, "'", printable(name), "': no model of this name: expected a .leq or GGUF ",
       "file, a folder of safetensors, a name of `leq ls`, a short name of `leq ls --names`, or a ",
       "model on the Hugging Face hub as Qwen/Qwen3-0.6B",
       nearest ? "; did you mean " + *nearest + "?" : "");
}

}  // namespace leq
