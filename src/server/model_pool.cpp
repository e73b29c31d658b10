#include "server/model_pool.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "server/api_error.h"
#include "server/api_fields.h"
#include "server/api_model.h"
#include "server/model_pool_entry.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

// Once a load has waited this long for memory, it takes priority over new requests for loaded
// models, so that these models become idle and can be unloaded.
constexpr double kFairSeconds = 2;

// Whether the file was replaced since it was read; a removed file does not count.
bool is_replaced(const ModelFile& file) {
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(file.path, error);
  return !error && time.time_since_epoch().count() != file.changed;
}

}  // namespace

std::string_view state_name(ModelState state) {
  switch (state) {
    case ModelState::unloaded:
      return "unloaded";
    case ModelState::loading:
      return "loading";
    case ModelState::loaded:
      return "loaded";
    case ModelState::unloading:
      return "unloading";
    case ModelState::failed:
      break;
  }
  return "failed";
}

ModelPool::ModelPool(const Model& model, Session& session, const HostOptions& options)
    : most_requests_(leq::most_requests(session.limits(), options)) {
  entries_.emplace_back();
  default_ = &entries_.back();
  default_->loaded = std::make_unique<Loaded>(RunnableModel{{}, &model, &session, options});
  default_->state = ModelState::loaded;
  default_->file.name = default_->loaded->hosted.api().name;
  default_->file.path = model.file().name();
}

ModelPool::ModelPool(const PoolOptions& options, ModelLoader loader)
    : options_(options), loader_(std::move(loader)) {
  constexpr std::size_t kMostAtOnce = 4;  // number of models whose requests get separate threads
  most_requests_ = options_.requests * std::min(options_.models, kMostAtOnce);
  if (options_.file) {
    std::error_code error;
    entries_.emplace_back();
    default_ = &entries_.back();
    ModelFile& file = default_->file;
    file.path = *options_.file;
    file.name = options_.file_name.empty() ? model_name_of(file.path) : options_.file_name;
    file.bytes = fs::file_size(file.path, error);
    file.changed = fs::last_write_time(file.path, error).time_since_epoch().count();
  }
  rescan();
  if (default_ != nullptr) {
    Lock lock(mutex_);
    load(*default_, lock, [] { return true; });
  }
}

ModelPool::~ModelPool() = default;

bool ModelPool::is_in_use(const Entry& entry) {
  return entry.state != ModelState::unloaded && entry.state != ModelState::failed;
}

// Updates the list of files; a model that is in use keeps its entry.
void ModelPool::rescan() {
  if (has_one_model()) return;
  std::vector<ModelFile> files = models_in(options_.folder);
  if (default_ != nullptr && !is_in_use(*default_) && is_replaced(default_->file)) {
    default_->file.changed = fs::last_write_time(default_->file.path).time_since_epoch().count();
    default_->state = ModelState::unloaded;
  }
  std::erase_if(files, [&](const ModelFile& file) {
    std::error_code error;
    return default_ != nullptr && (file.name == default_->file.name ||
                                   fs::equivalent(file.path, default_->file.path, error));
  });
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
}

ModelPool::Entry& ModelPool::entry_of(std::string_view name) {
  if (has_one_model()) return entries_.front();
  const auto find = [&]() -> Entry* {
    if (name.empty() && default_ != nullptr) return default_;
    if (name.empty()) return entries_.size() == 1 ? &entries_.front() : nullptr;
    for (Entry& entry : entries_) {
      if (entry.file.name == name || entry.file.path.filename() == name) return &entry;
    }
    return nullptr;
  };
  Entry* found = find();
  if (found == nullptr || found->state == ModelState::failed) {
    rescan();
    found = find();
  }
  if (found != nullptr) return *found;
  if (name.empty()) field_error("model", "expected the name of one of the models (GET /v1/models)");
  throw ApiError(404, "there is no model " + printable(std::string(name)) + " here",
                 "model_not_found");
}

ModelPool::Lease ModelPool::lease_of(Entry& entry) {
  ++entry.users;
  return {&entry.loaded->hosted, Release{this, &entry}};
}

void ModelPool::give_back(Entry& entry) {
  {
    const std::lock_guard lock(mutex_);
    --entry.users;
  }
  changed_.notify_all();
}

// Returns false if the load of another model has waited too long for memory.
bool ModelPool::may_use(const Entry& entry) const {
  return room_queue_.empty() || room_queue_.front()->entry == &entry ||
         room_queue_.front()->since.seconds() < kFairSeconds;
}

ModelPool::Lease ModelPool::lease(std::string_view name, const std::function<bool()>& is_wanted) {
  Lock lock(mutex_);
  Entry& entry = entry_of(name);
  if (has_one_model()) return lease_of(entry);
  check_running();
  check_queue();
  ++entry.waiting;
  try {
    Lease lease = wait_for(entry, lock, is_wanted);
    --entry.waiting;
    return lease;
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    --entry.waiting;
    throw;
  }
}

void ModelPool::check_running() const {
  if (stopping_) throw Busy("the server is shutting down", true);
}

void ModelPool::check_queue() const {
  std::size_t requests = 0;
  for (const Entry& entry : entries_) requests += entry.users + entry.waiting;
  if (requests < most_requests_) return;
  throw Busy(
      std::to_string(requests) + " requests are answered or wait for a model; try again later",
      false);
}

ModelPool::Lease ModelPool::wait_for(Entry& entry, Lock& lock,
                                     const std::function<bool()>& is_wanted) {
  while (true) {
    check_running();
    if (entry.state == ModelState::loaded) {
      const bool is_over =
          entry.loaded->hosted.engine().failure().has_value() || is_replaced(entry.file);
      if (is_over && entry.users == 0) {
        drop(entry, lock);
        rescan();
        continue;
      }
      if (may_use(entry)) {
        entry.last_use = ++uses_;
        return lease_of(entry);
      }
    } else if (entry.state == ModelState::unloaded || entry.state == ModelState::failed) {
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
    if (entry.state == ModelState::loaded) leases.push_back(lease_of(entry));
  }
  return leases;
}

std::vector<ModelStatus> ModelPool::list() {
  const std::lock_guard lock(mutex_);
  rescan();
  std::vector<ModelStatus> all;
  for (const Entry& entry : entries_) {
    all.push_back({entry.file, entry.state,
                   entry.state == ModelState::failed ? entry.error : std::string(),
                   entry.has_place ? entry.bytes : 0, &entry == default_});
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
  return has_one_model() ? default_->loaded->hosted.engine().failure() : std::nullopt;
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
  const Stopwatch watch;
  const std::vector<Lease> all = loaded();
  for (const Lease& lease : all) (void)lease->engine().drain(0);
  for (const Lease& lease : all) lease->end(std::max(0.0, seconds - watch.seconds()));
}

}  // namespace leq
