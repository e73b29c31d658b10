// Several ranks on one model: the leader has a Session, each of the others follows it with its own
// backend, weights and pages (docs/ranks.md).
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "comm/thread_ranks.h"
#include "model/memory_plan.h"
#include "model/open_model.h"

namespace leq {

// All that a rank does that does not lead: the leader's steps, until its session ends. `limits` as
// resolve_limits returned them, the same on all ranks; `weights` are its share; `fingerprint` as
// the leader's session has it. Throws the Error that ended the ranks, its own or another's.
void follow(const ModelConfig& config, Weights weights, Backend& backend, const RunLimits& limits,
            Communicator& ranks, std::uint64_t fingerprint = 0);
void follow(const Model& model, Backend& backend, const RunLimits& limits, Communicator& ranks);

// Ranks that are threads of this process. They end with the leader's session, which must be gone
// before they are.
class ThreadFollowers {
 public:
  // backends[i] is rank i + 1's; `model` must outlive the followers.
  ThreadFollowers(const Model& model, std::vector<std::unique_ptr<Backend>> backends,
                  const RunLimits& limits, const ThreadRankOptions& options);
  // `bind` makes each rank's weights, on its thread.
  using Binder = std::function<Weights(Backend&, const RankPlace&)>;
  ThreadFollowers(const ModelConfig& config, const Binder& bind,
                  std::vector<std::unique_ptr<Backend>> backends, const RunLimits& limits,
                  const ThreadRankOptions& options, std::uint64_t fingerprint = 0);
  ~ThreadFollowers();
  ThreadFollowers(const ThreadFollowers&) = delete;

  Communicator& leader() { return ranks_[0]; }

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
  ThreadRanks ranks_;
  std::vector<std::thread> threads_;
};

// How many of `threads` a rank computes with, at least 1.
int threads_of_rank(int threads, int rank, int ranks);

}  // namespace leq
