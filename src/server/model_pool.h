// The models of one server: either a single model, or the files of a folder, each loaded on its
// first request. When another model needs the memory, the least recently used one is unloaded;
// models without requests may be unloaded after a time. A model is never unloaded while a request
// uses it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/saved_prefix.h"
#include "model/session.h"
#include "runtime/engine_thread.h"
#include "runtime/model_files.h"
#include "server/request.h"

namespace leq {

// Saves the texts of slots as files in one folder, under names that clients choose. Checks that a
// name is valid and cannot escape the folder.
class SlotFiles {
 public:
  // Throws Error if `folder` is not a writable folder. `owner`: stored in all saved files, and
  // required to match in files that are restored.
  SlotFiles(std::filesystem::path folder, const PrefixOwner& owner);

  const PrefixOwner& owner() const { return owner_; }
  // The path for a client's name, which must be a single path component of printable UTF-8 and must
  // not begin with a dot. Throws Error with the expected form.
  std::filesystem::path file(std::string_view name) const;
  // The file with the prefix cache's texts between runs; one per model.
  std::filesystem::path kept_texts() const;

  // Returns the size of the file. Throws Error like PrefixWriter.
  std::uint64_t write(std::string_view name, const SavedPrefix& prefix) const;
  // The first prefix of a file. Throws Error if the file does not exist, is not a regular file, has
  // another owner or no prefix, and like PrefixFile.
  SavedPrefix read(std::string_view name) const;

 private:
  std::filesystem::path folder_;
  PrefixOwner owner_;
};

// Settings for serving a model.
struct HostOptions {
  EngineOptions engine;
  std::string name;  // model name shown to clients; empty: the file's name
  // Defaults for requests:
  SamplingSettings sampling;
  std::optional<std::uint64_t> seed;
  std::int64_t max_tokens = -1;
  std::vector<std::string> stop;  // texts that end a reply, if the request names none
  std::string system;             // of conversations that have no system message; empty: none
  // The model's Modelfile and its parameters, for Ollama's clients; empty: it has none.
  std::string modelfile, parameters;
  std::string chat_template;  // the name of a format; empty: the model's own template
  bool enable_thinking = true;
  std::int64_t reasoning_tokens = -1;  // limit of reasoning tokens; -1: no limit
  std::string reasoning_words = std::string(kReasoningWords);  // inserted at a cutoff
  std::optional<Pooling> pooling;  // of embeddings; nullopt: as the model's file says
  std::size_t most_waiting = 64;   // limit of queued replies; more are rejected
  // Folder for saved slots and for the prefix cache's texts, which are stored between runs.
  std::optional<std::filesystem::path> slot_folder;
  // Receives log lines about stored texts that were read or written, including errors.
  std::function<void(const std::string& line)> say = [](const std::string&) {};
};

// A loaded model that the server can use: its engine, chat template and properties, and the texts
// of its prefix cache that are stored for the next start.
class HostedModel {
 public:
  // `model` and `session` must outlive it, and the session must not be used by other objects.
  // Throws Error on settings that the model does not support.
  HostedModel(const Model& model, Session& session, const HostOptions& options);

  const ApiModel& api() const { return api_; }
  const Model& model() const { return model_; }
  const RunLimits& limits() const { return limits_; }
  EngineThread& engine() { return engine_; }
  const std::optional<SlotFiles>& slot_files() const { return slot_files_; }
  const std::string& template_text() const { return template_text_; }  // or the format's name
  // Why no more requests can be answered: the engine ended, or the mapped file became shorter.
  std::optional<std::string> failure() const;

  // Stops accepting requests. Running replies may finish within `seconds`; then they are
  // interrupted. Writes the prefix cache's texts to the slot folder, if there is one.
  void end(double seconds);

 private:
  void read_kept();
  void write_kept();

  EngineOptions checked(EngineOptions options) const;

  const Model& model_;
  RunLimits limits_;
  std::function<void(const std::string&)> say_;
  std::optional<SlotFiles> slot_files_;
  bool keeps_texts_;  // false once they are written
  std::string template_text_;
  ApiModel api_;
  EngineThread engine_;
};

// A loaded model with its session, ready to run.
struct RunnableModel {
  std::shared_ptr<void> owner;  // owns `model` and `session`
  const Model* model = nullptr;
  Session* session = nullptr;
  HostOptions options;
};

// Loads model files; all functions may be called concurrently for different files.
struct ModelLoader {
  // The memory of the loaded model in bytes: weights, KV cache and scratch. Throws Error if the
  // file is not a model that can run here.
  std::function<std::uint64_t(const std::filesystem::path&)> plan;
  std::function<RunnableModel(const std::filesystem::path&)> load;
  // The defaults for requests to this loaded model that name it by settings (NameOf::settings).
  std::function<HostOptions(const std::string& name, const Model& model)> settings = {};
};

inline constexpr double kNeverIdle = std::numeric_limits<double>::infinity();

struct PoolOptions {
  // Lists the models, as models_in does for a folder; called again where a name is not known. Of
  // names for one file all share the loaded model. Empty: `file` is the only model, under any name.
  std::function<std::vector<ModelFile>()> files = {};
  std::optional<std::filesystem::path> file;  // the default model; need not be listed
  std::string file_name;                      // the default model's name; empty: its file's name
  std::uint64_t memory_bytes = 0;             // limit for all loaded models together
  std::size_t models = 4;                     // limit of models loaded at the same time
  std::size_t requests = 68;                  // limit of a model's running and queued requests
  // Seconds without requests after which a model is unloaded, until its next request.
  double idle_seconds = kNeverIdle;
  std::map<std::string, double> idle_seconds_of = {};  // of models with a time of their own
  std::vector<std::string> pinned = {};                // models that stay loaded once they are
  // The whole name for a request's, such as a repository's for a short one.
  std::function<std::string(const std::string& name)> whole_name = [](const auto& name) {
    return name;
  };
  std::function<void(const std::string& line)> say = [](const std::string&) {};
};

// `sleeping`: unloaded because it was idle.
enum class ModelState : std::uint8_t { unloaded, loading, loaded, unloading, failed, sleeping };
std::string_view state_name(ModelState state);

struct ModelStatus;

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
    bool is_use = true;
    void operator()(HostedModel*) const { pool->release(*entry, is_use); }
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
  // idle; returns nullptr once `is_wanted` reports that no client is waiting. `idle_seconds`: the
  // model's from now on. Throws ApiError 404 model_not_found, 500 model_load_failed or
  // model_too_large, and Busy.
  Lease lease(std::string_view name, const std::function<bool()>& is_wanted,
              std::optional<double> idle_seconds = {});
  // The name in list() of the model that a request's name means. Throws ApiError 404.
  std::string id_of(std::string_view name);
  // The properties of a leased model, with the defaults of the name under which it is asked. Throws
  // as id_of does.
  ApiModel api_of(std::string_view name, const HostedModel& hosted);
  // Unloads the model once no request uses it, or nothing if it is not loaded; returns early as
  // lease does. Throws ApiError 404 model_not_found, and 400 if the model must stay loaded.
  void unload(std::string_view name, const std::function<bool()>& is_wanted);
  // The models that are currently loaded; the call does not count as a use.
  std::vector<Lease> loaded();

  bool has_one_model() const { return !options_.files; }
  // All models by name, including files that are new in the folder.
  std::vector<ModelStatus> list();
  PoolCounts counts();
  // The limit of running and queued requests of all models that may be loaded together.
  std::size_t most_requests() const { return most_requests_; }
  // The reason why the only model can answer no more requests and is not loaded again.
  std::optional<std::string> failure();

  // Stops accepting requests. Running replies may finish within `seconds`; then they are
  // interrupted.
  void stop(double seconds);
  bool stopping();

 private:
  struct Loaded;  // a loaded model

  using Lock = std::unique_lock<std::mutex>;
  static bool is_in_use(const Entry& entry);  // loaded, or being loaded or unloaded
  static std::vector<const ModelFile*> names_of(const Entry& entry);
  bool is_pinned(const Entry& entry) const;
  double idle_seconds(const Entry& entry) const;
  void unload_idle();
  void rescan();
  struct Found;  // a model by one of its names
  Found find(std::string_view name);
  Entry& entry_of(std::string_view name);
  Lease lease_of(Entry& entry, bool is_use = true);
  void release(Entry& entry, bool is_use);
  bool may_use(const Entry& entry) const;
  void check_running() const;
  Lease wait_for(Entry& entry, Lock& lock, const std::function<bool()>& is_wanted);
  void load(Entry& entry, Lock& lock, const std::function<bool()>& is_wanted);
  bool reserve_memory(Entry& entry, std::uint64_t bytes, Lock& lock,
                      const std::function<bool()>& is_wanted);
  bool drop_oldest(Lock& lock);
  void drop(Entry& entry, Lock& lock, ModelState next = ModelState::unloaded);
  void set_state(Entry& entry, ModelState state);
  [[noreturn]] void fail_load(Entry& entry, const std::exception& error);
  std::uint64_t used_bytes() const;
  void require_space_beside_pinned(const Entry& entry, std::uint64_t bytes) const;

  PoolOptions options_;
  ModelLoader loader_;
  std::size_t most_requests_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Entry> entries_;
  Entry* default_ = nullptr;
  std::string default_name_;  // of the requests without a name; empty: there is no default
  struct Waiting;
  std::deque<Waiting*> memory_queue_;  // loads waiting for memory, in order of arrival
  std::int64_t uses_ = 0;              // number of the last use, for LRU
  PoolCounts counts_;
  bool stopping_ = false;
  std::thread idle_thread_;  // unloads idle models
};

struct ModelStatus {
  ModelFile file;
  ModelState state = ModelState::unloaded;
  std::string error;               // set if it failed
  std::uint64_t memory_bytes = 0;  // set if it is loaded, for the first name of a file
  bool is_default = false, is_pinned = false;
  double idle_seconds = kNeverIdle;  // until it is unloaded, if no request comes
  ModelPool::Lease hosted = {};      // null if it is not loaded
};

}  // namespace leq
