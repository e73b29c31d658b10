// The resources for quantization and evaluation: a CPU backend for forward passes, and a thread
// pool for loops over weights.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "platform/make_backend.h"

namespace leq {

struct Workers {
  explicit Workers(int threads)  // 0 = one for each usable core
      : backend(make_backend({.device = "cpu", .threads = threads})), pool(threads) {}

  std::unique_ptr<Backend> backend;
  ThreadPool pool;
};

}  // namespace leq
