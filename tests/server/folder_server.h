// A server with a folder of models and a loader that counts.
#pragma once

#include <httplib.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "server/served_model.h"
#include "temporary_folder.h"

namespace leq::test {

inline constexpr std::uint64_t kBytesOfOne = 100;  // planned by the tests' loader for each model
inline std::filesystem::path file_of(const std::string& type) {
  return quantized(std::string(LEQ_SOURCE_DIR) + "/examples/storyteller", type);
}

struct RunningModel {
  explicit RunningModel(const std::filesystem::path& path, LoadMode mode = LoadMode::automatic)
      : model(path, {.mode = mode}),
        backend(make_backend({.device = "cpu", .threads = 1})),
        session(model, *backend, limits(model)) {}
  static RunLimits limits(const Model& model) {
    RunLimits limits = story_limits(2);
    return resolve_limits(limits, model.config());
  }
  Model model;
  std::unique_ptr<Backend> backend;
  Session session;
};

// What a name of settings has.
inline HostOptions with_settings(const std::string& name, HostOptions options) {
  options.system = "You tell of a " + name + ".";
  options.sampling.temperature = 0;
  options.max_tokens = 12;
  options.modelfile = "FROM int8\n";
  options.parameters = "temperature 0\n";
  return options;
}

// A server with its own folder of models: int8, int4 and f16 variants of the storyteller.
class FolderServer {
 public:
  explicit FolderServer(
      std::uint64_t models_in_memory = 2, const std::string& file = "", std::size_t waiting = 64,
      const std::function<void(PoolOptions&)>& change = [](PoolOptions&) {}) {
    std::filesystem::copy_file(file_of("int8"), folder / "int8.leq");
    std::filesystem::copy_file(file_of("int4-g64"), folder / "int4.leq");
    std::filesystem::copy_file(file_of("f16"), folder / "f16.leq");
    ServerOptions options = story_options();
    PoolOptions pool;
    pool.files = [path = folder.path()] { return models_in(path); };
    pool.memory_bytes = models_in_memory * kBytesOfOne;
    pool.requests = waiting;
    if (!file.empty()) pool.file = folder / file;
    change(pool);
    server = std::make_unique<Server>(pool, loader(options), options);
  }

  ModelLoader loader(const HostOptions& options) {
    ModelLoader loader;
    loader.plan = [this](const std::filesystem::path& path) {
      const Model probe(path, {.mode = LoadMode::map});
      return path.stem() == "f16" ? f16_bytes.load() : kBytesOfOne;
    };
    loader.load = [this, options](const std::filesystem::path& path) {
      const std::lock_guard lock(mutex);
      ++loads[path.stem()];
      at_load();
      const auto end = [this](RunningModel* ended) {
        delete ended;
        at_unload();
      };
      const std::shared_ptr<RunningModel> running(new RunningModel(path, mode), end);
      return RunnableModel{running, &running->model, &running->session, options};
    };
    loader.settings = [options](const std::string& name, const Model&) {
      return with_settings(name, options);
    };
    return loader;
  }

  httplib::Client client() const {
    httplib::Client client("127.0.0.1", server->port());
    client.set_read_timeout(60);
    client.set_tcp_nodelay(true);
    return client;
  }
  std::pair<int, Json> post(const std::string& path, const std::string& body) const {
    const auto result = client().Post(path, body, "application/json");
    if (!result) return {0, Json(nullptr)};
    return {result->status, parse_json(result->body, "the answer")};
  }
  std::pair<int, Json> complete(const std::string& model, std::int64_t tokens = 24) const {
    return post(
        "/v1/completions",
        Json{{"model", model}, {"prompt", "Once upon a time"}, {"seed", 3}, {"max_tokens", tokens}}
            .dump());
  }
  std::string text(const std::string& path) const { return client().Get(path)->body; }
  // Returns the state of each model by its name.
  std::map<std::string, std::string> states() const {
    std::map<std::string, std::string> states;
    const Json list = parse_json(text("/v1/models"), "models");
    for (std::size_t i = 0; i < list["data"].size(); ++i) {
      const Json& one = list["data"][i];
      states[one["id"].text()] = one["status"]["value"].text();
    }
    return states;
  }
  int loads_of(const std::string& name) {
    const std::lock_guard lock(mutex);
    return loads[name];
  }

  TemporaryFolder folder;
  std::atomic<std::uint64_t> f16_bytes = kBytesOfOne;
  LoadMode mode = LoadMode::automatic;
  std::mutex mutex;
  std::map<std::string, int> loads;
  std::function<void()> at_load = [] {}, at_unload = [] {};
  std::unique_ptr<Server> server;
};

}  // namespace leq::test
