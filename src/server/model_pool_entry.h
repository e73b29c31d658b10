// State of a model in a ModelPool; internal to its source files.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "base/stopwatch.h"
#include "server/model_pool.h"

namespace leq {

// Interval at which a thread that waits for a model checks whether its client is still connected.
inline constexpr auto kModelLook = std::chrono::milliseconds(100);

// Members are destroyed in reverse order, so `hosted` ends before `runnable`, which it references.
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
  std::uint64_t bytes = 0;  // planned memory
  bool has_place = false;   // the memory is reserved
  std::size_t users = 0;    // number of leases
  std::size_t waiting = 0;  // requests waiting for a lease
  std::int64_t last_use = 0;
  std::string error = {};  // set by a permanent failure
  std::string error_code = {};
};

struct ModelPool::Waiting {
  Entry* entry = nullptr;
  Stopwatch since = {};
};

}  // namespace leq
