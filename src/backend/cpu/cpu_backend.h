// The CPU backend: one pool of threads, and the kernels of one instruction set.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "base/cpu_features.h"
#include "base/topology.h"

namespace leq {

struct CpuOptions {
  int threads = 0;          // 0: one for each usable core
  Isa isa = Isa::portable;  // chosen_isa() returns the best one
  // Placement of threads and weights on the memory nodes; without effect on a single node.
  NumaMode numa = NumaMode::off;
  // How weights are prefetched if there are few tokens; affects only the speed.
  Fetch fetch = best_fetch();
};

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

}  // namespace leq
