// Facts that ranks which share a model compare before the first step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "model/memory_plan.h"
#include "model/model_config.h"
#include "model/open_model.h"
#include "ranks/communicator.h"
#include "ranks/thread_ranks.h"

namespace leq {

// `fingerprint`: LeqReader::fingerprint(), or 0 if the weights are not from a file.
std::vector<RankFact> rank_facts(const ModelConfig& config, const RunLimits& limits,
                                 std::uint64_t fingerprint);

// Several ranks on one model. The leader has a Session; each other rank follows it with its own
// backend, weights and pages (docs/ranks.md).

// Runs a rank other than the leader: executes the leader's steps until its session ends. `limits`
// are from resolve_limits, the same on all ranks; `weights` are this rank's share; `fingerprint` is
// that of the leader's session. Throws the Error that ended the ranks, its own or another's.
void follow(const ModelConfig& config, Weights weights, Backend& backend, const RunLimits& limits,
            Communicator& ranks, std::uint64_t fingerprint = 0);
void follow(const Model& model, Backend& backend, const RunLimits& limits, Communicator& ranks);

// Ranks that are threads of this process. They end with the leader's session, which must be
// destroyed before this object.
class ThreadFollowers {
 public:
  // backends[i] belongs to rank i + 1. `model` must outlive the followers.
  ThreadFollowers(const Model& model, std::vector<std::unique_ptr<Backend>> backends,
                  const RunLimits& limits, const ThreadRankOptions& options);
  // `bind` creates each rank's weights and is called on that rank's thread.
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

// Number of threads that one of several ranks uses, at least 1.
int threads_of_rank(int threads, int rank, int ranks);

}  // namespace leq
