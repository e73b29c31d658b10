// Requests that arrive at random while others are written, through the engine that a server uses.
#pragma once

#include <cstdint>

#include "report/table.h"
#include "tools/bench/model.h"

namespace leq {

struct Traffic {
  double per_second = 1;  // arrivals, independent of each other; 0: all are there at the start
  std::int64_t requests = 64;
  std::int64_t prompt = 512;  // tokens, drawn at random: no two prompts share a beginning
  std::int64_t reply = 128;
  // Not 0: a request with a prompt of so many tokens comes when a quarter of all tokens is written.
  std::int64_t long_prompt = 0;
  std::uint64_t seed = 1;
};

// Tokens per second over all, percentiles of the time to a first token and of the time from one
// token to the next; the late request stands apart, but for what it does to the others. Throws
// Error where a request of this size does not fit.
Row bench_traffic(const BenchModel& model, Session& session, const Traffic& traffic);

}  // namespace leq
