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
  // One token's weights are fetched once ahead of their use, not once for each cache: speed alone.
  bool fetch_once = reads_ahead();
};

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

}  // namespace leq
