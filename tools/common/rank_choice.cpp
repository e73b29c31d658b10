#include "tools/common/rank_choice.h"

#include <optional>

#include "base/error.h"
#include "comm/mpi_ranks.h"
#include "model/ranks.h"
#include "tools/common/device_choice.h"

namespace leq {

Option rank_option(const std::string& group) {
  return {.name = "tp",
          .kind = OptionKind::integer,
          .value_name = "N",
          .fallback = "1",
          .help =
              "ranks that share the model (tensor parallelism), each with its part of the "
              "threads, or its GPU; results are bit-identical",
          .group = group,
          .minimum = 1,
          .maximum = ThreadRanks::kMostRanks};
}

void check_ranks(const Options& options, std::int64_t ranks) {
  require(ranks == 1 || numa_mode(options) == NumaMode::off, "--tp ", ranks,
          ": ranks share the cores evenly; leave --numa out, or start each rank by numactl");
}

int rank_count(const Options& options) {
  if (!options.declares("tp")) return 1;
  const std::int64_t ranks = options.integer("tp");
  check_ranks(options, ranks);
  return static_cast<int>(ranks);
}

bool ranks_are_processes(const Options& options, int ranks) {
  const std::optional<int> processes = mpi_processes();
  if (!processes || (*processes == 1 && ranks > 1)) return false;
  require(*processes == ranks, "--tp ", ranks, ": mpirun started ", *processes,
          " processes, expected as many");
  require(ranks == 1 || !options.declares("device") || !device_name(options).starts_with("sim"),
          "--tp ", ranks,
          ": ranks on emulated GPUs are threads of one process; start it without mpirun");
  return ranks > 1;
}

std::vector<std::unique_ptr<Backend>> follower_backends(const Options& options, int threads,
                                                        int ranks) {
  std::vector<std::unique_ptr<Backend>> backends;
  for (int rank = 1; rank < ranks; ++rank) {
    const int own = threads_of_rank(threads, rank, ranks);
    backends.push_back(rank_backend(options, own, rank, ranks));
    backends.back()->record_steps(!options.declares("graph") || options.flag("graph"));
  }
  return backends;
}

ThreadRankOptions thread_rank_options(int threads, int ranks) {
  ThreadRankOptions options;
  for (int rank = 0; rank < ranks; ++rank) options.threads += threads_of_rank(threads, rank, ranks);
  return options;
}

}  // namespace leq
