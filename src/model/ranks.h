// Several ranks on one model. The leader has a Session; each other rank follows it with its own
// backend, weights and pages (docs/ranks.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <variant>
#include <vector>

#include "backend/backend.h"
#include "cache/kv_cache.h"
#include "cache/sequence_state.h"
#include "model/decoder.h"
#include "model/memory_plan.h"
#include "model/model_config.h"
#include "model/open_model.h"
#include "ranks/communicator.h"

namespace leq {

// What the leader sends to the other ranks: steps, copies of pages, saving and loading of sequences
// and states, the end.

// One step, with the pages and positions that the leader's KV cache assigned to it.
struct RankStep {
  enum class Wanted : std::uint8_t { logits, hidden } wanted = Wanted::logits;
  Batch batch;                          // its `sequences` are not sent
  std::vector<std::int32_t> positions;  // [T]
  std::vector<SequenceRun> runs;
  std::vector<std::int32_t> copies, frames = {};      // [pages] f16 copy and frame; -1: none
  std::vector<FixedStates::StepStates> states = {};   // [runs]; zeros if the model has no states
  std::vector<std::vector<std::int32_t>> pages = {};  // after decoding: the memory of runs[i].pages
};

struct RankEnd {};

using RankCommand = std::variant<RankStep, PageCopy, RankEnd, SequenceTransfer, StateTransfer>;

std::vector<std::byte> encode(RankCommand command);
// Throws Error if the bytes are not a valid command.
RankCommand decode_command(std::span<const std::byte> bytes);

// What ranks that share a model compare before the first step. `fingerprint`: that of the file
// (LeqReader), or 0 if the weights are not from a file.
std::vector<RankFact> rank_facts(const ModelConfig& config, const RunLimits& limits,
                                 std::uint64_t fingerprint);

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
