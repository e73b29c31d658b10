// The resources for quantization and evaluation: a CPU backend for forward passes, and a thread
// pool for loops over weights.
#pragma once

#include <memory>

#include "backend/cpu/cpu_backend.h"
#include "base/thread_pool.h"

namespace leq {

struct Workers {
  explicit Workers(int threads)  // 0 = one for each usable core
      : backend(make_cpu_backend({.threads = threads, .isa = chosen_isa()})), pool(threads) {}

  std::unique_ptr<Backend> backend;
  ThreadPool pool;
};

}  // namespace leq
