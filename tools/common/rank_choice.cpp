#include "tools/common/rank_choice.h"

#include "base/error.h"
#include "ranks/communicator.h"
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
          .maximum = ThreadRanks::kMaxRanks};
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

}  // namespace leq
