#include "server/model_pool.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/stopwatch.h"
#include "base/system.h"
#include "base/text.h"
#include "format/leq_layout.h"

namespace leq {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxNameBytes = 200;

bool is_plain(unsigned char c) { return c >= 0x20 && c != 0x7f && c != '/' && c != '\\'; }

}  // namespace

SlotFiles::SlotFiles(fs::path folder, const PrefixOwner& owner)
    : folder_(std::move(folder)), owner_(owner) {
  check_output(kept_texts());
}

fs::path SlotFiles::file(std::string_view name) const {
  const bool good = !name.empty() && name.size() <= kMaxNameBytes && name.front() != '.' &&
                    std::ranges::all_of(name, is_plain) && !first_invalid_utf8(name);
  require(good, marked_field("filename"), ' ', printable(name),
          ": expected the name of a file without a path, of at most ", kMaxNameBytes,
          " bytes, that does not begin with a point");
  return folder_ / name;
}

fs::path SlotFiles::kept_texts() const {
  return folder_ / ("texts-" + checksum_text(owner_.model) + ".leqprm");
}

std::uint64_t SlotFiles::write(std::string_view name, const SavedPrefix& prefix) const {
  const fs::path path = file(name);
  PrefixWriter writer(path, owner_);
  if (file_exists(path)) (void)PrefixFile(path);  // a client may replace no other kind of file
  writer.add(prefix);
  writer.commit();
  return fs::file_size(path);
}

SavedPrefix SlotFiles::read(std::string_view name) const {
  const fs::path path = file(name);
  std::error_code error;
  require(fs::is_regular_file(fs::symlink_status(path, error)), marked_field("filename"), ' ',
          printable(name), ": there is no such file");
  const PrefixFile prefixes(path);
  const std::string reason = prefixes->reason_against(owner_);
  require(reason.empty(), marked_field("filename"), ' ', printable(name), ": ", reason);
  require(prefixes->size() > 0, marked_field("filename"), ' ', printable(name), ": holds no text");
  return prefixes->read(0);
}

namespace {

std::optional<SlotFiles> files_of_slots(const Model& model, Session& session,
                                        const HostOptions& options) {
  if (!options.slot_folder) return std::nullopt;
  return SlotFiles(*options.slot_folder, prefix_owner(model, session));
}

// The maximum number of replies of one model, running or queued.
std::size_t most_requests(const RunLimits& limits, const HostOptions& options) {
  return static_cast<std::size_t>(limits.sequences) + options.most_waiting;
}

// Sets the defaults for requests.
void set_defaults(ApiModel& api, const HostOptions& options) {
  if (!options.name.empty()) api.name = options.name;
  api.rendering.enable_thinking = options.enable_thinking;
  api.sampling = options.sampling;
  api.sampling.seed = options.seed.value_or(0);
  api.has_seed = options.seed.has_value();
  api.reasoning_tokens = options.reasoning_tokens;
  api.reasoning_words = options.reasoning_words;
  api.stop.max_tokens = options.max_tokens;
  api.stop.strings = options.stop;
  api.system = options.system;
  api.modelfile = options.modelfile;
  api.parameters = options.parameters;
}

ApiModel api_model(const Model& model, const RunLimits& limits, const HostOptions& options) {
  ApiModel api = api_model_of(model, options.chat_template);
  set_defaults(api, options);
  api.slots = limits.sequences;
  api.most_replies = most_requests(limits, options);
  api.most_choices = std::min(api.most_choices, static_cast<std::int64_t>(api.most_replies));
  if (options.pooling) api.embedding.pooling = options.pooling;
  return api;
}

}  // namespace

HostedModel::HostedModel(const Model& model, Session& session, const HostOptions& options)
    : model_(model),
      limits_(session.limits()),
      say_(options.say),
      slot_files_(files_of_slots(model, session, options)),
      keeps_texts_(slot_files_.has_value()),
      template_text_(options.chat_template.empty() ? model.chat_template() : options.chat_template),
      api_(api_model(model, limits_, options)),
      engine_(session, model.tokenizer(), checked(options.engine),
              most_requests(limits_, options)) {
  require(session.transformer().online().empty() || limits_.sequences == 1, Setting{"sequences"},
          ' ', limits_.sequences, ": this model's activations remember one sequence; use ",
          Setting{"sequences"}, " 1");
  if (!api_.chat_error.empty()) {
    say_(api_.name + ": no chats, only completions: " + api_.chat_error);
  }
  read_kept();
}

EngineOptions HostedModel::checked(EngineOptions options) const {
  options.check_step = [this] {
    if (model_.file().is_whole()) return;
    throw Error("the model " + api_.name + " has failed: its file became shorter, or its disk " +
                    "failed, while it was in use",
                ErrorKind::io);
  };
  return options;
}

std::optional<std::string> HostedModel::failure() const {
  if (model_.file().is_whole()) return engine_.failure();
  return api_.name + ": the file became shorter, or its disk failed, while it was in use";
}

void HostedModel::end(double seconds) {
  engine_.close(seconds);
  if (!engine_.drain()) engine_.cancel_all();
  write_kept();
}

// The stored texts only save time: if they cannot be read, the model starts normally.
void HostedModel::read_kept() {
  if (!slot_files_) return;
  const fs::path path = slot_files_->kept_texts();
  engine_.between_steps([&](Engine& engine) {
    KeptTexts kept;
    try {
      kept = read_kept_texts(path, engine, slot_files_->owner());
    } catch (const Error& error) {
      say_(std::string(error.marked()) + "; its texts are fed as usual");
    }
    if (kept.texts == 0) return;
    say_(path.string() + ": " + with_commas(kept.tokens) + " tokens of " + with_commas(kept.texts) +
         " texts need not be fed again");
  });
}

void HostedModel::write_kept() {
  if (!std::exchange(keeps_texts_, false) || failure()) return;
  const SlotFiles& files = *slot_files_;
  try {
    engine_.with_idle_sequence([&](Engine& engine) {
      const KeptTexts kept = write_kept_texts(files.kept_texts(), engine, files.owner());
      if (kept.texts == 0) return;
      say_(files.kept_texts().string() + ": " + with_commas(kept.tokens) + " tokens of " +
           with_commas(kept.texts) + " texts are kept for the next start");
    });
  } catch (const Error& error) {
    say_(std::string(error.marked()) + "; the next start begins without the texts of this run");
  }
}

namespace {

// Interval at which a thread that waits for a model checks whether its client is still connected.
constexpr auto kModelLook = std::chrono::milliseconds(100);

// Once a load has waited this long for memory, it takes priority over new requests for loaded
// models, so that these models become idle and can be unloaded.
constexpr double kFairSeconds = 2;

// Whether the file was replaced since it was read; a removed file does not count.
bool is_replaced(const ModelFile& file) {
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(file.path, error);
  return !error && time.time_since_epoch().count() != file.changed;
}

ApiError not_found(std::string_view name) {
  return ApiError(404, "there is no model " + printable(std::string(name)) + " here",
                  "model_not_found");
}

}  // namespace

// Members are destroyed in reverse order, so `hosted` ends before `runnable`, which it references.
struct ModelPool::Loaded {
  explicit Loaded(RunnableModel read)
      : runnable(std::move(read)), hosted(*runnable.model, *runnable.session, runnable.options) {}
  RunnableModel runnable;
  HostedModel hosted;
};

struct ModelPool::Entry {
  ModelFile file;
  std::vector<ModelFile> settings = {};  // further names, of NameOf::settings
  ModelState state = ModelState::unloaded;
  std::unique_ptr<Loaded> loaded = {};
  std::uint64_t bytes = 0;   // planned memory
  bool has_place = false;    // the memory is reserved
  std::size_t users = 0;     // number of leases
  std::size_t requests = 0;  // of these, the ones of requests
  std::size_t waiting = 0;   // requests waiting for a lease
  std::int64_t last_use = 0;
  Stopwatch since_use = {};
  std::optional<double> idle_seconds = {};  // from the last request that said one
  std::string error = {};                   // set by a permanent failure
  std::string error_code = {};
};

struct ModelPool::Found {
  Entry* entry = nullptr;
  const ModelFile* name = nullptr;
};

struct ModelPool::Waiting {
  Entry* entry = nullptr;
  Stopwatch since = {};
};

std::string_view state_name(ModelState state) {
  constexpr std::string_view kNames[] = {"unloaded",  "loading", "loaded",
                                         "unloading", "failed",  "sleeping"};
  return kNames[static_cast<std::size_t>(state)];
}

ModelPool::ModelPool(const Model& model, Session& session, const HostOptions& options)
    : most_requests_(leq::most_requests(session.limits(), options)) {
  entries_.emplace_back();
  default_ = &entries_.back();
  default_->loaded = std::make_unique<Loaded>(RunnableModel{{}, &model, &session, options});
  default_->state = ModelState::loaded;
  default_->file.name = default_->loaded->hosted.api().name;
  default_->file.path = model.file().name();
  default_name_ = default_->file.name;
}

ModelPool::ModelPool(const PoolOptions& options, ModelLoader loader)
    : options_(options), loader_(std::move(loader)) {
  constexpr std::size_t kMaxAtOnce = 4;  // number of models whose requests get separate threads
  most_requests_ = options_.requests * std::min(options_.models, kMaxAtOnce);
  if (options_.file) {
    entries_.emplace_back();
    default_ = &entries_.back();
    default_name_ = options_.file_name.empty() ? model_name_of(*options_.file) : options_.file_name;
    default_->file = model_file(default_name_, *options_.file);
  }
  rescan();
  if (default_ != nullptr) {
    Lock lock(mutex_);
    load(*default_, lock, [] { return true; });
  }
  idle_thread_ = std::thread([this] { unload_idle(); });
}

ModelPool::~ModelPool() {
  if (!idle_thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  idle_thread_.join();
}

bool ModelPool::is_in_use(const Entry& entry) {
  return entry.state == ModelState::loading || entry.state == ModelState::loaded ||
         entry.state == ModelState::unloading;
}

// The names under which the file is served; pointers into the entry.
std::vector<const ModelFile*> ModelPool::names_of(const Entry& entry) {
  std::vector<const ModelFile*> names;
  if (entry.file.name_of == NameOf::file) names.push_back(&entry.file);
  for (const ModelFile& name : entry.settings) names.push_back(&name);
  return names;
}

bool ModelPool::is_pinned(const Entry& entry) const {
  return std::ranges::any_of(names_of(entry), [&](const ModelFile* name) {
    return std::ranges::find(options_.pinned, name->name) != options_.pinned.end();
  });
}

double ModelPool::idle_seconds(const Entry& entry) const {
  if (is_pinned(entry)) return kNeverIdle;
  if (entry.idle_seconds) return *entry.idle_seconds;
  for (const ModelFile* name : names_of(entry)) {
    const auto own = options_.idle_seconds_of.find(name->name);
    if (own != options_.idle_seconds_of.end()) return own->second;
  }
  return options_.idle_seconds;
}

void ModelPool::unload_idle() {
  Lock lock(mutex_);
  while (!stopping_) {
    double next = 3600;
    Entry* due = nullptr;
    for (Entry& entry : entries_) {
      if (entry.state != ModelState::loaded || entry.users + entry.waiting > 0) continue;
      const double left = idle_seconds(entry) - entry.since_use.seconds();
      if (left <= 0) due = &entry;
      next = std::min(next, left);
    }
    if (due != nullptr) {
      drop(*due, lock, ModelState::sleeping);
    } else {
      changed_.wait_for(lock, std::chrono::duration<double>(next));
    }
  }
}

// Updates the list of files and of names; a model that is in use keeps its entry.
void ModelPool::rescan() {
  if (has_one_model()) return;
  std::vector<ModelFile> files = options_.files(), settings;
  std::erase_if(files, [&](const ModelFile& file) {
    if (file.name_of == NameOf::settings) settings.push_back(file);
    return file.name_of == NameOf::settings;
  });
  for (Entry& entry : entries_) entry.settings.clear();
  if (default_ != nullptr && !is_in_use(*default_) && is_replaced(default_->file)) {
    default_->file.changed = fs::last_write_time(default_->file.path).time_since_epoch().count();
    default_->state = ModelState::unloaded;
  }
  const bool by_settings =
      std::ranges::find(settings, default_name_, &ModelFile::name) != settings.end();
  if (default_ != nullptr) {
    default_->file.name = default_name_;
    default_->file.name_of = by_settings ? NameOf::nothing : NameOf::file;
  }
  std::erase_if(files, [&](const ModelFile& file) {
    if (default_ == nullptr) return false;
    std::error_code error;
    const bool is_same = fs::equivalent(file.path, default_->file.path, error);
    if (is_same && by_settings) {  // it has its own name beside
      default_->file.name = file.name;
      default_->file.name_of = NameOf::file;
    }
    return is_same || file.name == default_name_;
  });
  const auto has_path_of = [](const ModelFile& name) {
    return [&name](const ModelFile& file) {
      std::error_code error;
      return file.path == name.path || fs::equivalent(file.path, name.path, error);
    };
  };
  for (const ModelFile& name : settings) {  // of files that have no name of their own here
    const bool is_default = default_ != nullptr && has_path_of(name)(default_->file);
    if (!is_default && std::ranges::none_of(files, has_path_of(name))) {
      files.push_back(name);
      files.back().name_of = NameOf::nothing;
    }
  }
  for (const ModelFile& file : files) {
    const auto known = std::ranges::find(entries_, file.name, [](auto& e) { return e.file.name; });
    if (known == entries_.end()) {
      entries_.emplace_back().file = file;
    } else if (!is_in_use(*known)) {
      if (known->file != file) known->state = ModelState::unloaded;
      known->file = file;
    }
  }
  entries_.remove_if([&](const Entry& entry) {
    return &entry != default_ && !is_in_use(entry) && entry.users + entry.waiting == 0 &&
           std::ranges::find(files, entry.file.name, &ModelFile::name) == files.end();
  });
  for (const ModelFile& name : settings) {
    const auto entry = std::ranges::find_if(entries_, has_path_of(name), &Entry::file);
    if (entry != entries_.end()) entry->settings.push_back(name);
  }
}

// The model that the name fits best, of several without their tags the newest; null if none does.
ModelPool::Found ModelPool::find(std::string_view name) {
  if (name.empty()) name = default_name_;
  std::vector<Found> all;
  for (Entry& entry : entries_) {
    for (const ModelFile* known : names_of(entry)) all.push_back({&entry, known});
  }
  if (name.empty()) return all.size() == 1 ? all.front() : Found();
  const std::string whole = options_.whole_name(std::string(name));
  Found best;
  std::pair<NameMatch, fs::file_time_type::rep> match;
  for (const Found& one : all) {
    const ModelFile& known = *one.name;
    const NameMatch own = match_name(name, whole, known.name,
                                     known.name_of == NameOf::settings ? fs::path() : known.path);
    const std::pair now(own, known.changed);
    if (own == NameMatch::none || (best.entry != nullptr && now <= match)) continue;
    best = one;
    match = now;
  }
  return best;
}

ModelPool::Entry& ModelPool::entry_of(std::string_view name) {
  if (has_one_model()) return entries_.front();
  Entry* found = find(name).entry;
  if (found == nullptr || found->state == ModelState::failed) {
    rescan();
    found = find(name).entry;
  }
  if (found != nullptr) return *found;
  if (name.empty()) field_error("model", "expected the name of one of the models (GET /v1/models)");
  throw not_found(name);
}

std::string ModelPool::id_of(std::string_view name) {
  const std::lock_guard lock(mutex_);
  rescan();
  if (const Found found = find(name); found.entry != nullptr) return found.name->name;
  throw not_found(name);
}

ApiModel ModelPool::api_of(std::string_view name, const HostedModel& hosted) {
  ApiModel api = hosted.api();
  if (has_one_model()) return api;
  ModelFile known;
  {
    const std::lock_guard lock(mutex_);
    const Found found = find(name);
    if (found.entry == nullptr) throw not_found(name);
    known = *found.name;
  }
  if (known.name_of == NameOf::settings) {
    set_defaults(api, loader_.settings(known.name, hosted.model()));
  }
  api.name = known.name;
  return api;
}

ModelPool::Lease ModelPool::lease_of(Entry& entry, bool is_use) {
  ++entry.users;
  if (is_use) ++entry.requests;
  return {&entry.loaded->hosted, Release{this, &entry, is_use}};
}

void ModelPool::release(Entry& entry, bool is_use) {
  {
    const std::lock_guard lock(mutex_);
    --entry.users;
    if (is_use) {
      --entry.requests;
      entry.since_use.restart();
    }
  }
  changed_.notify_all();
}

// Returns false if the load of another model has waited too long for memory.
bool ModelPool::may_use(const Entry& entry) const {
  return memory_queue_.empty() || memory_queue_.front()->entry == &entry ||
         memory_queue_.front()->since.seconds() < kFairSeconds;
}

ModelPool::Lease ModelPool::lease(std::string_view name, const std::function<bool()>& is_wanted,
                                  std::optional<double> idle_seconds) {
  Lock lock(mutex_);
  Entry& entry = entry_of(name);
  check_running();
  std::size_t requests = 0;
  for (const Entry& each : entries_) requests += each.requests + each.waiting;
  if (requests >= most_requests_) {
    if (entry.loaded != nullptr) entry.loaded->hosted.engine().count_refused();
    throw Busy(
        std::to_string(requests) + " requests are answered or wait for a model; try again later",
        false);
  }
  if (!loader_.load) return lease_of(entry);
  ++entry.waiting;
  try {
    Lease lease = wait_for(entry, lock, is_wanted);
    --entry.waiting;
    // Not before, because unloading a model ends what its last requests said.
    if (lease != nullptr && idle_seconds) entry.idle_seconds = idle_seconds;
    return lease;
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    --entry.waiting;
    throw;
  }
}

void ModelPool::unload(std::string_view name, const std::function<bool()>& is_wanted) {
  Lock lock(mutex_);
  Entry& entry = entry_of(name);
  if (!loader_.load || is_pinned(entry)) {
    throw ApiError(400, "the model " + entry.file.name + " stays loaded", "model_stays_loaded");
  }
  ++entry.waiting;  // keeps the entry
  while (is_in_use(entry) && is_wanted()) {
    if (entry.state == ModelState::loaded && entry.users == 0) {
      drop(entry, lock);
    } else {
      changed_.wait_for(lock, kModelLook);
    }
  }
  --entry.waiting;
}

void ModelPool::check_running() const {
  if (stopping_) throw Busy("the server is shutting down", true);
}

ModelPool::Lease ModelPool::wait_for(Entry& entry, Lock& lock,
                                     const std::function<bool()>& is_wanted) {
  while (true) {
    check_running();
    if (entry.state == ModelState::loaded) {
      const bool has_failed = entry.loaded->hosted.failure().has_value();
      if ((has_failed || is_replaced(entry.file)) && entry.users == 0) {
        drop(entry, lock);
        rescan();
        continue;
      }
      if (!has_failed && may_use(entry)) {
        entry.last_use = ++uses_;
        return lease_of(entry);
      }
    } else if (!is_in_use(entry)) {
      std::error_code error;
      if (!fs::exists(entry.file.path, error) && !error) throw not_found(entry.file.name);
      if (entry.state == ModelState::failed) throw ApiError(500, entry.error, entry.error_code);
      load(entry, lock, is_wanted);
      if (entry.state == ModelState::loaded) continue;
    }
    if (!is_wanted()) return {};
    changed_.wait_for(lock, kModelLook);
  }
}

std::vector<ModelPool::Lease> ModelPool::loaded() {
  const std::lock_guard lock(mutex_);
  std::vector<Lease> leases;
  leases.reserve(entries_.size());
  for (Entry& entry : entries_) {
    if (entry.state == ModelState::loaded) leases.push_back(lease_of(entry, false));
  }
  return leases;
}

std::vector<ModelStatus> ModelPool::list() {
  std::vector<ModelStatus> all;  // its leases end after the lock
  const std::lock_guard lock(mutex_);
  rescan();
  for (Entry& entry : entries_) {
    const double idle = entry.users > 0 ? 0 : entry.since_use.seconds();
    std::uint64_t bytes = entry.has_place ? entry.bytes : 0;
    for (const ModelFile* name : names_of(entry)) {
      ModelStatus& status = all.emplace_back();
      status.file = *name;
      status.state = entry.state;
      if (entry.state == ModelState::failed) status.error = entry.error;
      if (entry.state == ModelState::loaded) {
        const auto failure = entry.loaded->hosted.failure();
        if (failure) status.state = ModelState::failed;
        status.error = failure.value_or("");
        status.idle_seconds = std::max(0.0, idle_seconds(entry) - idle);
        status.hosted = lease_of(entry, false);
      }
      status.memory_bytes = std::exchange(bytes, 0);
      status.is_default = &entry == default_ && name->name == default_name_;
      status.is_pinned = is_pinned(entry);
    }
  }
  std::ranges::stable_sort(
      all, {}, [](const ModelStatus& one) { return std::pair(!one.is_default, one.file.name); });
  return all;
}

PoolCounts ModelPool::counts() {
  const std::lock_guard lock(mutex_);
  PoolCounts counts = counts_;
  counts.memory_bytes = used_bytes();
  counts.loaded =
      static_cast<std::size_t>(std::ranges::count(entries_, ModelState::loaded, &Entry::state));
  return counts;
}

std::optional<std::string> ModelPool::failure() {
  return !loader_.load ? default_->loaded->hosted.failure() : std::nullopt;
}

bool ModelPool::stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

void ModelPool::stop(double seconds) {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  const std::vector<Lease> all = loaded();
  for (const Lease& lease : all) lease->engine().close(seconds);
  for (const Lease& lease : all) lease->end(seconds);
}

// Loads models, and unloads other models to free memory for them.

// The load is cancelled once no client waits for it; the model then stays unloaded.
void ModelPool::load(Entry& entry, Lock& lock, const std::function<bool()>& is_wanted) {
  entry.state = ModelState::loading;
  const fs::path path = entry.file.path;
  const Stopwatch watch;
  try {
    lock.unlock();
    const std::uint64_t bytes = loader_.plan(path);
    lock.lock();
    if (bytes > options_.memory_bytes) {
      throw ApiError(500,
                     entry.file.name + ": takes " + human_bytes(bytes) + ", and models may take " +
                         human_bytes(options_.memory_bytes) + " together",
                     "model_too_large");
    }
    if (!reserve_memory(entry, bytes, lock, is_wanted))
      return set_state(entry, ModelState::unloaded);
    lock.unlock();
    RunnableModel runnable = loader_.load(path);
    runnable.options.name = entry.file.name;
    auto loaded = std::make_unique<Loaded>(std::move(runnable));
    lock.lock();
    entry.loaded = std::move(loaded);
    entry.since_use.restart();
  } catch (const std::exception& error) {
    if (!lock.owns_lock()) lock.lock();
    fail_load(entry, error);
  }
  ++counts_.loads;
  set_state(entry, ModelState::loaded);
  options_.say(entry.file.name + ": loaded in " + fixed(watch.seconds(), 1) + " s" +
               (entry.bytes > 0 ? ", " + human_bytes(entry.bytes) : std::string()));
}

void ModelPool::set_state(Entry& entry, ModelState state) {
  entry.state = state;
  if (!is_in_use(entry)) entry.has_place = false;
  changed_.notify_all();
}

// Stores the reason if the file is at fault, and throws it to the client without the file's path.
void ModelPool::fail_load(Entry& entry, const std::exception& error) {
  if (dynamic_cast<const Busy*>(&error) != nullptr) {
    set_state(entry, ModelState::unloaded);
    throw;
  }
  ++counts_.failures;
  const auto* known = dynamic_cast<const Error*>(&error);
  const auto* api = dynamic_cast<const ApiError*>(&error);
  const std::string folder = entry.file.path.parent_path().string() + "/";
  const bool bad_alloc = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  const std::string text =
      api != nullptr ? api->what()
                     : "the model " + entry.file.name + " cannot be loaded: " +
                           replace_all(bad_alloc ? "out of memory" : error.what(), folder, "");
  entry.error = text;
  entry.error_code = api != nullptr ? api->code() : "model_load_failed";
  options_.say(text);
  // Whether another attempt with the same file would fail in the same way.
  const bool is_lasting = known != nullptr && (known->kind() == ErrorKind::bad_input ||
                                               known->kind() == ErrorKind::bad_setting);
  set_state(entry, is_lasting ? ModelState::failed : ModelState::unloaded);
  const bool no_memory = known != nullptr ? known->kind() == ErrorKind::no_memory : bad_alloc;
  throw ApiError(no_memory ? 503 : 500, entry.error, entry.error_code);
}

// Reserves memory for a model: unloads idle models until there is enough, or waits until requests
// to other models end. Returns false once no client waits for this model.
bool ModelPool::reserve_memory(Entry& entry, std::uint64_t bytes, Lock& lock,
                               const std::function<bool()>& is_wanted) {
  Waiting waiting = {&entry};
  memory_queue_.push_back(&waiting);
  const auto leave = [&] {
    if (!lock.owns_lock()) lock.lock();
    std::erase(memory_queue_, &waiting);
    changed_.notify_all();
  };
  try {
    while (true) {
      check_running();
      require_space_beside_pinned(entry, bytes);  // others may be loaded during the wait
      const bool is_next = memory_queue_.front() == &waiting;
      const auto places =
          static_cast<std::size_t>(std::ranges::count_if(entries_, &Entry::has_place));
      const bool fits = used_bytes() <= options_.memory_bytes - bytes && places < options_.models;
      if (is_next && fits) break;
      if (is_next && drop_oldest(lock)) continue;
      if (!is_wanted()) {
        leave();
        return false;
      }
      changed_.wait_for(lock, kModelLook);
    }
    entry.bytes = bytes;
    entry.has_place = true;
  } catch (...) {
    leave();
    throw;
  }
  leave();
  return true;
}

bool ModelPool::drop_oldest(Lock& lock) {
  Entry* oldest = nullptr;
  for (Entry& entry : entries_) {
    if (entry.state != ModelState::loaded || entry.users > 0 || is_pinned(entry)) continue;
    if (oldest == nullptr || entry.last_use < oldest->last_use) oldest = &entry;
  }
  if (oldest != nullptr) drop(*oldest, lock);
  return oldest != nullptr;
}

void ModelPool::drop(Entry& entry, Lock& lock, ModelState next) {
  std::unique_ptr<Loaded> loaded = std::move(entry.loaded);
  set_state(entry, ModelState::unloading);
  lock.unlock();
  try {
    loaded->hosted.end(0);
  } catch (const std::exception&) {  // the stored texts only save time
  }
  loaded.reset();
  system::return_freed_memory();
  lock.lock();
  ++counts_.drops;
  entry.idle_seconds.reset();
  options_.say(entry.file.name +
               (next == ModelState::sleeping ? ": unloaded, it was idle" : ": unloaded"));
  set_state(entry, next);
}

// Memory of pinned models never becomes free, so no load waits for it.
void ModelPool::require_space_beside_pinned(const Entry& entry, std::uint64_t bytes) const {
  std::size_t places = 1;
  std::uint64_t pinned = bytes;
  for (const Entry& other : entries_) {
    if (&other == &entry || !other.has_place || !is_pinned(other)) continue;
    ++places;
    pinned += other.bytes;
  }
  if (places <= options_.models && pinned <= options_.memory_bytes) return;
  throw ApiError(500, entry.file.name + ": there is no room beside the pinned models",
                 "model_too_large");
}

std::uint64_t ModelPool::used_bytes() const {
  std::uint64_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.has_place ? entry.bytes : 0;
  return bytes;
}

}  // namespace leq
