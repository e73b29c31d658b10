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
#include "tools/common/model_file.h"
#include "tools/common/modelfile.h"
#include "tools/common/setting_flags.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKeptTag = "kept";  // a checkpoint that is quantized already
constexpr std::string_view kDefaultGguf = "Q4_K_M";
constexpr std::uint64_t kMaxOriginBytes = 64u << 10;

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The type at the end of a GGUF file's name: "Q4_K_M" of "a-Q4_K_M.gguf" or of its first part,
// "a-Q4_K_M-00001-of-00003.gguf"; the whole name if it ends with no type.
std::string gguf_label(const std::string& path) {
  std::string stem = file_name(path);
  stem.erase(stem.size() - std::string_view(".gguf").size());
  if (const auto part = stem.rfind("-of-"); part != stem.npos && part > 6) stem.erase(part - 6);
  const auto at = stem.find_last_of("-.");
  const std::string end = at == stem.npos ? stem : stem.substr(at + 1);
  const bool is_type = end.size() > 1 &&
                       std::string_view("QIFBTMqifbtm").find(end[0]) != std::string_view::npos &&
                       std::ranges::any_of(end, [](unsigned char c) { return std::isdigit(c); });
  return is_type ? end : stem;
}

// GGUF models of a repository: one file, or the first of its parts.
std::vector<HubFile> gguf_models(const HubRepository& repository) {
  std::vector<HubFile> found;
  for (const HubFile& file : repository.files) {
    const std::string name = file_name(file.name);
    const auto part = name.rfind("-of-");
    const bool later_part =
        part != name.npos && part > 6 && !name.substr(0, part).ends_with("-00001");
    if (!name.ends_with(".gguf") || later_part || name.find("mmproj") != name.npos ||
        name.find("imatrix") != name.npos) {
      continue;
    }
    found.push_back(file);
  }
  return found;
}

HubChoice gguf_choice(const HubRepository& repository, const HubFile& first) {
  HubChoice choice = {.gguf = first.name, .tag = gguf_label(first.name)};
  const auto part = first.name.rfind("-00001-of-");
  for (const HubFile& file : repository.files) {
    const bool same = part == first.name.npos
                          ? file.name == first.name
                          : file.name.ends_with(".gguf") &&
                                file.name.substr(0, part) == first.name.substr(0, part) &&
                                file.name.size() == first.name.size();
    if (same) choice.files.push_back(file);
  }
  return choice;
}

// Whether the file configures a module of sentence-transformers: "1_Pooling/config.json".
bool configures_module(std::string_view name) {
  return name >= "0" && name < ":" && name.ends_with("/config.json") &&
         std::ranges::count(name, '/') == 1;
}

// Ends of the names of a checkpoint's files.
bool is_of_checkpoint(std::string_view name) {
  constexpr std::array<std::string_view, 6> kEndings = {".json", ".safetensors", ".model",
                                                        ".txt",  ".tiktoken",    ".jinja"};
  return std::ranges::any_of(kEndings,
                             [&](std::string_view ending) { return name.ends_with(ending); });
}

// The files of a checkpoint: those of the repository's own folder that readers look for, and the
// modules' settings. A copy of the weights in another program's form is left out.
HubChoice checkpoint_choice(const HubRepository& repository) {
  HubChoice choice;
  for (const HubFile& file : repository.files) {
    const bool inside = file.name.find('/') != file.name.npos;
    if (!is_of_checkpoint(file.name) || (inside && !configures_module(file.name))) continue;
    if (file.name.starts_with("consolidated")) continue;
    choice.files.push_back(file);
  }
  return choice;
}

bool has_weights(const HubChoice& checkpoint) {
  return std::ranges::any_of(
      checkpoint.files, [](const HubFile& file) { return file.name.ends_with(".safetensors"); });
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
                         [](const HubFile& one) { return !one.name.ends_with(".safetensors"); });
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

// What a model of the models folder is made of; the same as `repository@commit` of origin_of.
struct Origin {
  std::string repository, commit, file = "";

  std::string text() const { return repository + "@" + commit; }
};

// Makes the model with `make` if its file is missing or of another origin.
void make_kept(const KeptModel& model, const Origin& origin, const std::function<void()>& make) {
  const FileLock lock(
      model.path.parent_path() / ".locks" / (model.path.filename().string() + ".lock"),
      [&] { std::cerr << model.name << ": another program makes it; waiting\n"; });
  if (file_exists(model.path) && origin_of(model.path) == origin.text()) return;
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
  if (file_exists(file) && !origin_of(file).starts_with(folder.string() + "@")) {
    name += "-" + sha256_hex(folder.string()).substr(0, kPathDigits);
  }
  return {name + ":" + tag, kept_file(name, tag)};
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
  const std::vector<HubFile> models = gguf_models(repository);
  HubChoice checkpoint = checkpoint_choice(repository);
  const bool has_checkpoint = has_weights(checkpoint);
  if (tag.empty() && file.empty() && has_checkpoint) return checkpoint;
  const std::string wanted = tag.empty() && file.empty() ? std::string(kDefaultGguf) : tag;
  for (const HubFile& model : models) {
    if (file.empty() ? same_ignoring_case(gguf_label(model.name), wanted) : model.name == file) {
      return gguf_choice(repository, model);
    }
  }
  if (file.empty() && has_checkpoint) {
    check_tag(repository.name, tag);
    checkpoint.tag = tag;
    return checkpoint;
  }
  require(!models.empty(), repository.name,
          ": has neither *.safetensors in its own folder nor GGUF files");
  if (tag.empty() && file.empty()) return gguf_choice(repository, models.front());
  std::vector<std::string> labels;
  for (const HubFile& model : models) {
    labels.push_back(file.empty() ? gguf_label(model.name) : model.name);
  }
  fail(repository.name, ": has no GGUF file ", file.empty() ? tag : file, "; it has ",
       join(labels));
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
  const fs::path path = origin_file(file);
  if (!file_exists(path)) return "";
  const Json origin = parse_json(read_file(path, kMaxOriginBytes), path.string());
  return json_get<std::string>(origin, "repository", path.string()) + "@" +
         json_get<std::string>(origin, "commit", path.string());
}

KeptModel pull_model(const HubName& name, const Options& options, bool update) {
  if (options.given("hf-token")) ::setenv("HF_TOKEN", options.text("hf-token").c_str(), 1);
  if (options.flag("offline")) ::setenv("HF_HUB_OFFLINE", "1", 1);
  const std::string tag = tag_of(name, options);
  const std::string file = options.given("hf-file") ? options.text("hf-file") : "";
  if (!update && file.empty()) {
    const std::string known = name.repository + (tag.empty() ? "" : ":" + tag);
    if (auto kept = find_kept(known)) return *kept;
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
  const KeptModel model = {repository.name + ":" + kept_tag, kept_file(repository.name, kept_tag)};
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
    if (chosen || origin_of(model.path) != origin.text()) continue;
    if (!newest || fs::last_write_time(model.path) > fs::last_write_time(newest->path)) {
      newest = model;
    }
  }
  if (newest) return *newest;
  const std::string tag = chosen                ? options.text("recipe")
                          : holds_codes(folder) ? kKeptTag
                                                : kDefaultType;
  const KeptModel model =
      origin.repository == folder.string()
          ? kept_of_folder(folder, tag)
          : KeptModel{origin.repository + ":" + tag, kept_file(origin.repository, tag)};
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
