// Loads models, and unloads other models to free memory for them.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "server/api_error.h"
#include "server/model_pool.h"
#include "server/model_pool_entry.h"

namespace leq {
namespace {

// Whether another attempt with the same file would fail in the same way.
bool is_lasting(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return known != nullptr &&
         (known->kind() == ErrorKind::bad_input || known->kind() == ErrorKind::bad_setting);
}

int status_of_failure(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  const bool no_memory = known != nullptr ? known->kind() == ErrorKind::no_memory
                                          : dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  return no_memory ? 503 : 500;
}

}  // namespace

// The load is cancelled once no client waits for it; the model then stays unloaded.
void ModelPool::load(Entry& entry, Lock& lock, const std::function<bool()>& is_wanted) {
  entry.state = ModelState::loading;
  const std::filesystem::path path = entry.file.path;
  const Stopwatch watch;
  try {
    lock.unlock();
    const std::uint64_t bytes = loader_.plan(path);
    lock.lock();
    require_size(entry, bytes);
    if (!make_room(entry, bytes, lock, is_wanted)) return set_state(entry, ModelState::unloaded);
    lock.unlock();
    RunnableModel runnable = loader_.load(path);
    runnable.options.name = entry.file.name;
    auto loaded = std::make_unique<Loaded>(std::move(runnable));
    lock.lock();
    entry.loaded = std::move(loaded);
  } catch (const std::exception& error) {
    if (!lock.owns_lock()) lock.lock();
    fail_load(entry, error);
  }
  ++counts_.loads;
  set_state(entry, ModelState::loaded);
  options_.say(entry.file.name + ": loaded in " + fixed(watch.seconds(), 1) + " s, " +
               human_bytes(entry.bytes));
}

void ModelPool::require_size(const Entry& entry, std::uint64_t bytes) const {
  if (bytes <= options_.memory_bytes) return;
  throw ApiError(500,
                 entry.file.name + ": takes " + human_bytes(bytes) + ", and models may take " +
                     human_bytes(options_.memory_bytes) + " together",
                 "model_too_large");
}

void ModelPool::set_state(Entry& entry, ModelState state) {
  entry.state = state;
  if (state == ModelState::unloaded || state == ModelState::failed) entry.has_place = false;
  changed_.notify_all();
}

// Stores the reason if the file is at fault, and throws it to the client without the file's path.
void ModelPool::fail_load(Entry& entry, const std::exception& error) {
  if (dynamic_cast<const Busy*>(&error) != nullptr) {
    set_state(entry, ModelState::unloaded);
    throw;
  }
  ++counts_.failures;
  const auto* api = dynamic_cast<const ApiError*>(&error);
  const std::string folder = entry.file.path.parent_path().string() + "/";
  const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  const std::string text =
      api != nullptr ? api->what()
                     : "the model " + entry.file.name + " cannot be loaded: " +
                           replace_all(no_memory ? "out of memory" : error.what(), folder, "");
  entry.error = text;
  entry.error_code = api != nullptr ? api->code() : "model_load_failed";
  options_.say(text);
  set_state(entry, is_lasting(error) ? ModelState::failed : ModelState::unloaded);
  throw ApiError(status_of_failure(error), entry.error, entry.error_code);
}

// Reserves memory for a model: unloads idle models until there is enough, or waits until requests
// to other models end. Returns false once no client waits for this model.
bool ModelPool::make_room(Entry& entry, std::uint64_t bytes, Lock& lock,
                          const std::function<bool()>& is_wanted) {
  Waiting waiting = {&entry};
  room_queue_.push_back(&waiting);
  const auto leave = [&] {
    if (!lock.owns_lock()) lock.lock();
    std::erase(room_queue_, &waiting);
    changed_.notify_all();
  };
  try {
    while (true) {
      check_running();
      const bool is_next = room_queue_.front() == &waiting;
      const bool fits =
          used_bytes() <= options_.memory_bytes - bytes && used_places() < options_.models;
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
    if (entry.state != ModelState::loaded || entry.users > 0) continue;
    if (oldest == nullptr || entry.last_use < oldest->last_use) oldest = &entry;
  }
  if (oldest != nullptr) drop(*oldest, lock);
  return oldest != nullptr;
}

void ModelPool::drop(Entry& entry, Lock& lock) {
  std::unique_ptr<Loaded> loaded = std::move(entry.loaded);
  set_state(entry, ModelState::unloading);
  lock.unlock();
  try {
    loaded->hosted.end(0);
  } catch (const std::exception&) {  // the stored texts only save time
  }
  loaded.reset();
  malloc_trim(0);
  lock.lock();
  ++counts_.drops;
  options_.say(entry.file.name + ": unloaded");
  set_state(entry, ModelState::unloaded);
}

std::uint64_t ModelPool::used_bytes() const {
  std::uint64_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.has_place ? entry.bytes : 0;
  return bytes;
}

std::size_t ModelPool::used_places() const {
  return static_cast<std::size_t>(std::ranges::count_if(entries_, &Entry::has_place));
}

}  // namespace leq
