// The models of one server: either a single model that stays loaded, or the files of a folder, each
// loaded on its first request. When another model needs the memory, the least recently used one is
// unloaded. A model is never unloaded while a request uses it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/hosted_model.h"
#include "server/model_folder.h"

namespace leq {

// A loaded model with its session, ready to run.
struct RunnableModel {
  std::shared_ptr<void> owner;  // owns `model` and `session`
  const Model* model = nullptr;
  Session* session = nullptr;
  HostOptions options;
};

// Loads model files; both functions may be called concurrently for different files.
struct ModelLoader {
  // The memory of the loaded model in bytes: weights, KV cache and scratch. Throws Error if the
  // file is not a model that can run here.
  std::function<std::uint64_t(const std::filesystem::path&)> plan;
  std::function<RunnableModel(const std::filesystem::path&)> load;
};

struct PoolOptions {
  std::filesystem::path folder;
  std::optional<std::filesystem::path> file;  // the default model; may be outside the folder
  std::string file_name;                      // the default model's name; empty: its file's name
  std::uint64_t memory_bytes = 0;             // limit for all loaded models together
  std::size_t models = 4;                     // limit of models loaded at the same time
  std::size_t requests = 68;                  // limit of a model's running and queued requests
  std::function<void(const std::string& line)> say = [](const std::string&) {};
};

enum class ModelState : std::uint8_t { unloaded, loading, loaded, unloading, failed };
std::string_view state_name(ModelState state);

struct ModelStatus {
  ModelFile file;
  ModelState state = ModelState::unloaded;
  std::string error;               // set if loading failed
  std::uint64_t memory_bytes = 0;  // set if it is loaded
  bool is_default = false;
};

struct PoolCounts {
  std::int64_t loads = 0, drops = 0, failures = 0;  // since the start
  std::uint64_t memory_bytes = 0;                   // sum over loaded models
  std::size_t loaded = 0;
};

class ModelPool {
  struct Entry;

 public:
  struct Release {
    ModelPool* pool = nullptr;
    Entry* entry = nullptr;
    void operator()(HostedModel*) const { pool->give_back(*entry); }
  };
  // Keeps a model loaded while it exists.
  using Lease = std::unique_ptr<HostedModel, Release>;

  // Serves one model under any requested name.
  ModelPool(const Model& model, Session& session, const HostOptions& options);
  // Serves the models of a folder and loads the default model immediately. Throws Error like
  // models_in, and if the default model cannot be loaded.
  ModelPool(const PoolOptions& options, ModelLoader loader);
  ~ModelPool();

  // Returns the model of this name (the default model if it is empty), loading it if necessary;
  // concurrent requests share one load. If models in use occupy the memory, it waits until one is
  // idle; returns nullptr once `is_wanted` reports that no client is waiting. Throws ApiError 404
  // model_not_found, 500 model_load_failed or model_too_large, and Busy.
  Lease lease(std::string_view name, const std::function<bool()>& is_wanted);
  // The models that are currently loaded; the call does not count as a use.
  std::vector<Lease> loaded();

  bool has_one_model() const { return !loader_.load; }
  // All models by name, including files that are new in the folder.
  std::vector<ModelStatus> list();
  PoolCounts counts();
  // The limit of running and queued requests of all models that may be loaded together.
  std::size_t most_requests() const { return most_requests_; }
  // The reason why the engine of the only model ended unexpectedly.
  std::optional<std::string> failure();

  // Stops accepting requests. Running replies may finish within `seconds`; then they are
  // interrupted.
  void stop(double seconds);
  bool stopping();

 private:
  struct Loaded;  // a loaded model

  using Lock = std::unique_lock<std::mutex>;
  static bool is_in_use(const Entry& entry);  // loaded, or being loaded or unloaded
  void rescan();
  Entry& entry_of(std::string_view name);
  Lease lease_of(Entry& entry);
  void give_back(Entry& entry);
  bool may_use(const Entry& entry) const;
  void check_running() const;
  void check_queue() const;
  Lease wait_for(Entry& entry, Lock& lock, const std::function<bool()>& is_wanted);
  void load(Entry& entry, Lock& lock, const std::function<bool()>& is_wanted);
  bool make_room(Entry& entry, std::uint64_t bytes, Lock& lock,
                 const std::function<bool()>& is_wanted);
  bool drop_oldest(Lock& lock);
  void drop(Entry& entry, Lock& lock);
  void require_size(const Entry& entry, std::uint64_t bytes) const;
  void set_state(Entry& entry, ModelState state);
  [[noreturn]] void fail_load(Entry& entry, const std::exception& error);
  std::uint64_t used_bytes() const;
  std::size_t used_places() const;

  PoolOptions options_;
  ModelLoader loader_;
  std::size_t most_requests_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Entry> entries_;
  Entry* default_ = nullptr;
  struct Waiting;
  std::deque<Waiting*> room_queue_;  // loads waiting for memory, in order of arrival
  std::int64_t uses_ = 0;            // number of the last use, for LRU
  PoolCounts counts_;
  bool stopping_ = false;
};

}  // namespace leq
