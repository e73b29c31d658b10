// What a ModelPool keeps of each model, for its own files.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "base/stopwatch.h"
#include "server/model_pool.h"

namespace leq {

// How often a thread that waits for a model looks whether somebody waits for its answer.
inline constexpr auto kModelLook = std::chrono::milliseconds(100);

// What is served goes before what it runs on.
struct ModelPool::Loaded {
  explicit Loaded(RunnableModel read)
      : runnable(std::move(read)), hosted(*runnable.model, *runnable.session, runnable.options) {}
  RunnableModel runnable;
  HostedModel hosted;
};

struct ModelPool::Entry {
  ModelFile file;
  ModelState state = ModelState::unloaded;
  std::unique_ptr<Loaded> loaded = {};
  std::uint64_t bytes = 0;  // of the plan
  bool has_place = false;   // its bytes are taken
  std::size_t users = 0;    // leases
  std::size_t waiting = 0;  // for a lease
  std::int64_t last_use = 0;
  std::string error = {};  // where it failed for good
  std::string error_code = {};
};

struct ModelPool::Waiting {
  Entry* entry = nullptr;
  Stopwatch since = {};
};

}  // namespace leq
