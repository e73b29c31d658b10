// Everything that a tool needs to run a model: weights, KV cache and transformer on one backend.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cache/sequence_state.h"
#include "model/memory_plan.h"
#include "model/open_model.h"
#include "model/sharding.h"
#include "model/transformer.h"
#include "ranks/communicator.h"

namespace leq {

// Loads the weights of the rank at `place`. First reserves the memory of the whole plan for these
// limits, because a Session will follow. Throws Error as DeviceMemory::plan and bind_weights do.
Weights load_weights(const TensorFinder& find, std::string_view source, const ModelConfig& config,
                     Backend& backend, const RunLimits& limits, const RankPlace& place);
Weights load_weights(const Model& model, Backend& backend, const RunLimits& limits,
                     const RankPlace& place);

class Session;
// A session of the model's multi-token prediction head, on one rank. `limits` are the result of
// resolve_limits for the head. The model must have such a head.
std::unique_ptr<Session> make_mtp_session(const Model& model, Backend& backend,
                                          const RunLimits& limits);
// Like the above; `mtp` is mtp_model of a model with the tensors of `find`, and must stay alive.
std::unique_ptr<Session> make_mtp_session(const TensorFinder& find, std::string_view source,
                                          const ModelConfig& mtp, Backend& backend,
                                          const RunLimits& limits);

class Session {
 public:
  // Loads the model's weights. `model`, `backend` and `ranks` must outlive the session; `limits`
  // are the result of resolve_limits. With several ranks this session is the leader: the others run
  // follow() (ranks.h) until the session ends.
  Session(const Model& model, Backend& backend, const RunLimits& limits,
          Communicator& ranks = one_rank());
  // Uses weights from load_weights, or weights bound without a plan, such as synthetic ones. The
  // memory that they point to and `config` must outlive the session. `fingerprint` is that of the
  // model's file, for detecting ranks that have read different files.
  Session(const ModelConfig& config, Weights weights, std::uint64_t weight_bytes, Backend& backend,
          const RunLimits& limits, Communicator& ranks = one_rank(), std::uint64_t fingerprint = 0);
  ~Session();

  // Not movable, because its transformer and cache point to its members.
  Session(Session&&) = delete;

  KvCache& cache() { return cache_; }
  // The memory of the session's sequences: KV pages and, if layers have them, fixed states.
  SequenceState state() { return {cache_, states_.get()}; }
  Transformer& transformer() { return transformer_; }
  const Weights& weights() const { return weights_; }
  const RunLimits& limits() const { return limits_; }
  const MemoryPlan& plan() const { return plan_; }  // plan of this rank
  int ranks() const { return ranks_.size(); }

  // Prefills tokens of one sequence in chunks of at most batch_tokens; returns the logits [1, V] of
  // the last token on the device, valid until the next call. `tokens` must not be empty.
  const Rows& advance(std::int32_t sequence, std::span<const Token> tokens);
  // Like advance, but returns the logits in host memory.
  std::span<const float> feed(std::int32_t sequence, std::span<const Token> tokens);

 private:
  Communicator& ranks_;
  RankPlace place_;
  RunLimits limits_;
  MemoryPlan plan_;
  KvCache cache_;
  std::unique_ptr<FixedStates> states_;  // null if no layer has a fixed state
  Weights weights_;
  Transformer transformer_;
  Batch batch_;
  std::vector<float> logits_;
};

}  // namespace leq
