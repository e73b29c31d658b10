#include "runtime/ranks.h"

#include <optional>

#include "base/error.h"
#include "comm/mpi_ranks.h"
#include "model/ranks.h"

namespace leq {

bool ranks_are_processes(int ranks, std::string_view device) {
  const std::optional<int> processes = mpi_processes();
  if (!processes || (*processes == 1 && ranks > 1)) return false;
  require(*processes == ranks, Setting{"ranks"}, ' ', ranks, ": mpirun started ", *processes,
          " processes, expected as many");
  require(ranks == 1 || !device.starts_with("sim"), Setting{"ranks"}, ' ', ranks,
          ": ranks on emulated GPUs are threads of one process; start it without mpirun");
  return ranks > 1;
}

std::unique_ptr<Backend> rank_backend(const DeviceOptions& device, int rank, int ranks) {
  DeviceOptions own = device;
  own.gpu.rank = rank;
  own.gpu.ranks = ranks;
  return make_backend(own);
}

std::vector<std::unique_ptr<Backend>> follower_backends(const DeviceOptions& device, int ranks,
                                                        bool record_steps) {
  std::vector<std::unique_ptr<Backend>> backends;
  for (int rank = 1; rank < ranks; ++rank) {
    DeviceOptions own = device;
    own.threads = threads_of_rank(device.threads, rank, ranks);
    backends.push_back(rank_backend(own, rank, ranks));
    backends.back()->record_steps(record_steps);
  }
  return backends;
}

ThreadRankOptions thread_rank_options(int threads, int ranks) {
  ThreadRankOptions options;
  for (int rank = 0; rank < ranks; ++rank) options.threads += threads_of_rank(threads, rank, ranks);
  return options;
}

}  // namespace leq
