// The CPU backend: one pool of threads, kernels of one instruction set.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "base/cpu_features.h"
#include "base/topology.h"

namespace leq {

struct CpuOptions {
  int threads = 0;          // 0 = one for each usable core
  Isa isa = Isa::portable;  // chosen_isa() for the best
  // Where threads and weights go on several memory nodes; of one node nothing is asked.
  NumaMode numa = NumaMode::off;
  // Weights of a few tokens, ahead of their use: speed alone.
  Fetch fetch = best_fetch();
};

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

}  // namespace leq
