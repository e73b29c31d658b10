// A model on several thread ranks, for tests.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "model/ranks.h"
#include "model/session.h"

namespace leq::test {

inline std::vector<std::unique_ptr<Backend>> follower_backends(int ranks, int threads, Isa isa) {
  std::vector<std::unique_ptr<Backend>> backends;
  for (int rank = 1; rank < ranks; ++rank) backends.push_back(make_cpu_backend({threads, isa}));
  return backends;
}

// `threads` is the number per rank; `limits` must be resolved.
struct RankedModel {
  RankedModel(const Model& model, int ranks, int threads, const RunLimits& limits)
      : backend(make_cpu_backend({threads, chosen_isa()})),
        followers(model, follower_backends(ranks, threads, chosen_isa()), limits,
                  {.threads = ranks * threads}),
        session(model, *backend, limits, followers.leader()) {}

  std::unique_ptr<Backend> backend;
  ThreadFollowers followers;
  Session session;
};

}  // namespace leq::test
