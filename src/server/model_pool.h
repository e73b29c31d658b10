// The models that one server answers with: one that is there for good, or the files of a folder,
// each loaded when a request names it and dropped, the one used longest ago first, where another
// needs its memory. A model is never dropped while a request uses it.
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

// A model that was read from its file, with all that it runs on.
struct RunnableModel {
  std::shared_ptr<void> owner;  // of both
  const Model* model = nullptr;
  Session* session = nullptr;
  HostOptions options;
};

// What reads the files of models; both may be called from several threads, for different files.
struct ModelLoader {
  // Bytes that the loaded model takes: weights, KV cache and scratch. Throws Error where it is no
  // model that can run here.
  std::function<std::uint64_t(const std::filesystem::path&)> plan;
  std::function<RunnableModel(const std::filesystem::path&)> load;
};

struct PoolOptions {
  std::filesystem::path folder;
  std::optional<std::filesystem::path> file;  // of the default model, in no need to lie in it
  std::string file_name;                      // for clients; empty: that of the file
  std::uint64_t memory_bytes = 0;             // of all loaded models together
  std::size_t models = 4;                     // loaded at the same time
  std::size_t requests = 68;                  // of one model, in work or waiting
  std::function<void(const std::string& line)> say = [](const std::string&) {};
};

enum class ModelState : std::uint8_t { unloaded, loading, loaded, unloading, failed };
std::string_view state_name(ModelState state);

struct ModelStatus {
  ModelFile file;
  ModelState state = ModelState::unloaded;
  std::string error;               // where it failed
  std::uint64_t memory_bytes = 0;  // where it is loaded
  bool is_default = false;
};

struct PoolCounts {
  std::int64_t loads = 0, drops = 0, failures = 0;  // since the start
  std::uint64_t memory_bytes = 0;                   // of loaded models
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
  // A model that stays loaded while it is held.
  using Lease = std::unique_ptr<HostedModel, Release>;

  // One model, by whatever name it is asked for.
  ModelPool(const Model& model, Session& session, const HostOptions& options);
  // Those of a folder; the default model is loaded at once. Throws Error as models_in does, and
  // where the default model cannot be loaded.
  ModelPool(const PoolOptions& options, ModelLoader loader);
  ~ModelPool();

  // By its name, or the default model by an empty one. Loads it where it is not loaded; whoever
  // asks meanwhile waits for the same. Where its memory is in use by models with requests, it waits
  // for one of them; nullptr once `is_wanted` says that no client waits for the answer. Throws
  // ApiError 404 model_not_found, 500 model_load_failed or model_too_large, and Busy.
  Lease lease(std::string_view name, const std::function<bool()>& is_wanted);
  // Those that are loaded now; to look at them is no use of them.
  std::vector<Lease> loaded();

  bool has_one_model() const { return !loader_.load; }
  // All, by name; files that are new in the folder too.
  std::vector<ModelStatus> list();
  PoolCounts counts();
  // Requests in work or waiting, of all models that may be loaded together.
  std::size_t most_requests() const { return most_requests_; }
  // What ended the engine of the only model on its own.
  std::optional<std::string> failure();

  // No request is taken from now on. Those in work are written to their ends, for at most so many
  // seconds; then they are interrupted.
  void stop(double seconds);
  bool stopping();

 private:
  struct Loaded;  // with its model

  using Lock = std::unique_lock<std::mutex>;
  static bool is_in_use(const Entry& entry);  // loaded, or on the way
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
  std::deque<Waiting*> room_queue_;  // loads that wait for memory, in the order in which they came
  std::int64_t uses_ = 0;            // a clock of uses
  PoolCounts counts_;
  bool stopping_ = false;
};

}  // namespace leq
