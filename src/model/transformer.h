// A decoder (decoder.h) with what surrounds a step of it: checks of the batch, positions, sequences
// that grow, errors undone. Where ranks share the model, each has a transformer of its own weights
// and all do the same step (docs/ranks.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "cache/sequence_state.h"
#include "comm/communicator.h"
#include "model/batch.h"
#include "model/collectives.h"
#include "model/decoder.h"
#include "model/model_config.h"
#include "model/observer.h"
#include "model/rank_command.h"
#include "model/sharding.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace leq {

class Transformer {
 public:
  // `config`, `weights` and `backend` must outlive the transformer.
  Transformer(const ModelConfig& config, const Weights& weights, Backend& backend,
              const ForwardLimits& limits);
  // One of `ranks`, at its place, with its share of the weights. All calls but follow() are the
  // leader's.
  Transformer(const ModelConfig& config, const Weights& weights, Backend& backend,
              const ForwardLimits& limits, Communicator& ranks, const RankPlace& place);

  // One step over a batch: appends its tokens to their sequences in `state` and returns the logits
  // [outputs, V] on the device, valid until the next call. Throws Error where the batch is larger
  // than the limits, a token is no id of the model, the context is full, or a row is not finite.
  // After an error sequences and moving scales are as they were; an asynchronous device reports
  // rows that are not finite later (Operations::synchronize), when both have moved on.
  const Rows& forward(const Batch& batch, const SequenceState& state);

  // The same for a head of multi-token prediction: `hidden` [T][W], of each row the hidden state of
  // the token before it.
  const Rows& forward(const Batch& batch, const SequenceState& state,
                      std::span<const float> hidden);
  // Of the last step the hidden states after the final norm of some of its rows, in any order:
  // `out` [rows][W]. Waits for the device.
  void normed_hidden(std::span<const std::int32_t> rows, std::span<float> out);

  // The same, but returns what the head would read: the normed last hidden states [outputs, W].
  const Rows& hidden(const Batch& batch, const SequenceState& state);

  // The step that the leader began, on another rank; its pages are `pages`, its states `states`,
  // null where no layer has one.
  void follow(const RankStep& step, const KvPages& pages, const FixedStates* states);

  // One sublayer of one layer over hidden states of a whole sequence, in place: `hidden` [T][W], T
  // at most batch_tokens. `state` must be empty and holds the sequence while an attention runs.
  // Returns false where the observer wanted no more; `hidden` is unchanged then.
  bool run_sublayer(Sublayer which, std::int64_t layer, std::span<float> hidden,
                    const SequenceState& state);
  // `observer` sees the inputs of all linears of the layers from now on; nullptr: none.
  void observe(Observer* observer) { decoder_.observe(observer); }

  const ForwardLimits& limits() const { return limits_; }
  const ModelConfig& config() const { return config_; }
  Backend& backend() { return backend_; }
  const std::string& rope_note() const { return work_.frequencies.note; }
  // Linears with a moving scale: their counters, and their states to save and to restore.
  std::span<OnlineInput> online() { return work_.online(); }

 private:
  void check(const Batch& batch, const SequenceState& state);
  void append(const Batch& batch, const SequenceState& state);
  void step(RankStep::Wanted wanted, const Batch& batch, const SequenceState& state);
  void run(RankStep::Wanted wanted, const Batch& batch, const KvLayers& kv);
  void lead(RankStep::Wanted wanted, const Batch& batch, const KvLayers& kv);
  Step step_of(const Batch& batch, const KvLayers& kv);
  Embedding embedding(const Batch& batch) const;

  const ModelConfig& config_;
  const Weights& weights_;
  Backend& backend_;
  ForwardLimits limits_;
  RankPlace place_;
  Workspace work_;
  Collectives ranks_;
  Decoder decoder_;
  // Of the step at work:
  std::vector<SequenceRun> runs_;
  std::vector<FixedStates::StepStates> states_;  // of each run
  BatchView batch_;
  std::vector<std::int32_t> positions_;  // [T]
  std::vector<std::byte> command_;
};

}  // namespace leq
