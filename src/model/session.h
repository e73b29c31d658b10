// What every tool that runs a model sets up: weights, KV cache and transformer on one backend.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cache/sequence_state.h"
#include "comm/communicator.h"
#include "model/memory_plan.h"
#include "model/open_model.h"
#include "model/sharding.h"
#include "model/transformer.h"

namespace leq {

// The weights of the rank at `place` on `backend`, after it took the memory of the whole plan for
// these limits: a Session is to follow. Throws Error as DeviceMemory::plan and bind_weights do.
Weights load_weights(const TensorFinder& find, std::string_view source, const ModelConfig& config,
                     Backend& backend, const RunLimits& limits, const RankPlace& place);

class Session;
// Of a model's head of multi-token prediction, on one rank; `limits` as resolve_limits returned
// them for it. The model must have one.
std::unique_ptr<Session> make_mtp_session(const Model& model, Backend& backend,
                                          const RunLimits& limits);
// Of `mtp`, the mtp_model of a model whose tensors `find` finds; it must outlive the session.
std::unique_ptr<Session> make_mtp_session(const TensorFinder& find, std::string_view source,
                                          const ModelConfig& mtp, Backend& backend,
                                          const RunLimits& limits);

class Session {
 public:
  // A model's own weights. `model`, `backend` and `ranks` must outlive the session; `limits` as
  // resolve_limits returned them. Where there are several ranks the session leads them: the others
  // follow() (ranks.h), and end with it.
  Session(const Model& model, Backend& backend, const RunLimits& limits,
          Communicator& ranks = one_rank());
  // Weights from elsewhere (synthetic ones), by load_weights or bound without a plan; what they
  // point to and `config` must outlive the session.
  // `fingerprint`: of the model's file, where ranks may have read different ones.
  Session(const ModelConfig& config, Weights weights, std::uint64_t weight_bytes, Backend& backend,
          const RunLimits& limits, Communicator& ranks = one_rank(), std::uint64_t fingerprint = 0);
  ~Session();

  // Stays where it is: its transformer and cache point into it.
  Session(Session&&) = delete;

  KvCache& cache() { return cache_; }
  // What the model remembers of its sequences: its pages, and what else its layers have.
  SequenceState state() { return {cache_, states_.get()}; }
  Transformer& transformer() { return transformer_; }
  const Weights& weights() const { return weights_; }
  const RunLimits& limits() const { return limits_; }
  const MemoryPlan& plan() const { return plan_; }  // of this rank
  int ranks() const { return ranks_.size(); }

  // Feeds tokens of one sequence in chunks of at most batch_tokens; returns the logits [1, V] of
  // the last token on the device, valid until the next call. `tokens` must not be empty.
  const Rows& advance(std::int32_t sequence, std::span<const Token> tokens);
  // The same logits on the host.
  std::span<const float> feed(std::int32_t sequence, std::span<const Token> tokens);

 private:
  Communicator& ranks_;
  RankPlace place_;
  RunLimits limits_;
  MemoryPlan plan_;
  KvCache cache_;
  std::unique_ptr<FixedStates> states_;  // null where no layer has one
  Weights weights_;
  Transformer transformer_;
  Batch batch_;
  std::vector<float> logits_;
};

}  // namespace leq
