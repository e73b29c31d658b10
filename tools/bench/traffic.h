// Sends requests at random times during the generation of others, through the server's engine.
#pragma once

#include <cstdint>

#include "base/table.h"
#include "tools/bench/model.h"

namespace leq {

struct Traffic {
  double per_second = 1;  // arrival rate (Poisson); 0: all at the start
  std::int64_t requests = 64;
  std::int64_t prompt = 512;  // random tokens, so that no prefixes are shared
  std::int64_t reply = 128;
  // If not 0, a request with a prompt of this length arrives after a quarter of the reply tokens.
  std::int64_t long_prompt = 0;
  std::uint64_t seed = 1;
};

// Returns total tokens per second, and percentiles of the time to the first token and between
// tokens. These include the effect of the long request, whose own time to the first token is a cell
// of its own. Throws Error if a request of this size does not fit.
Row bench_traffic(const BenchModel& model, Session& session, const Traffic& traffic);

}  // namespace leq
