// A decoder (decoder.h) with everything around a step: checks of the batch, positions, growing the
// sequences, rollback on errors. If ranks share the model, each has a transformer with its own
// weights and all run the same step (docs/ranks.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "cache/sequence_state.h"
#include "model/collectives.h"
#include "model/decoder.h"
#include "model/model_config.h"
#include "model/ranks.h"
#include "model/sharding.h"
#include "model/weights.h"
#include "model/workspace.h"
#include "ranks/communicator.h"

namespace leq {

// What a sublayer that is run alone reads beside the residual stream.
struct BesideStream {
  std::span<const float> owner = {};  // [T][W] that entered the layer whose keys it reads
  bool embeds = false;                // inputs of layers, of the tokens with ids 0, 1, ...
};

class Transformer {
 public:
  // `config`, `weights` and `backend` must outlive the transformer.
  Transformer(const ModelConfig& config, const Weights& weights, Backend& backend,
              const ForwardLimits& limits);
  // A transformer of the rank at `place`, with its share of the weights. Only the leader may make
  // calls other than follow().
  Transformer(const ModelConfig& config, const Weights& weights, Backend& backend,
              const ForwardLimits& limits, Communicator& ranks, const RankPlace& place);

  // Throws Error if the model makes embeddings and no text, because its attention sees both
  // directions.
  void check_writes() const;

  // Runs one step: appends the batch's tokens to their sequences in `state` and returns the logits
  // [outputs, V] on the device, valid until the next call. Throws Error if the batch exceeds the
  // limits, a token is not an id of the model, the context is full, or a row is not finite. After
  // an error, sequences and moving scales are restored. Asynchronous devices report rows that are
  // not finite later (Operations::synchronize), when this is no longer possible.
  const Rows& forward(const Batch& batch, const SequenceState& state);

  // Like forward, for a multi-token prediction head. Row t of `hidden` [T][W] is the hidden state
  // of the token before token t.
  const Rows& forward(const Batch& batch, const SequenceState& state,
                      std::span<const float> hidden);
  // Copies the hidden states after the final norm of some rows of the last step, in any order, to
  // `out` [rows][W]. Waits for the device.
  void normed_hidden(std::span<const std::int32_t> rows, std::span<float> out);

  // Like forward, but returns the head's input: the normed last hidden states [outputs, W].
  const Rows& hidden(const Batch& batch, const SequenceState& state);

  // Runs the step that the leader began, on another rank. `pages` and `states` belong to this rank;
  // `states` is null if no layer has one.
  void follow(const RankStep& step, const KvPages& pages, const FixedStates* states);

  // Runs one sublayer of one layer in place on the hidden states of a whole sequence: `hidden`
  // [T][W], T at most batch_tokens. `state` must be empty; attention stores the sequence there
  // during the call. Returns false if the observer ended the sublayer; `hidden` is unchanged then.
  bool run_sublayer(Sublayer which, std::int64_t layer, std::span<float> hidden,
                    const SequenceState& state, const BesideStream& beside = {});
  // The hidden states [T][W] that enter the first layer, of a sequence of `tokens`, T at most
  // batch_tokens.
  void embed(std::span<const std::int32_t> tokens, std::span<float> hidden);
  // The logits [rows, V] of hidden states [rows][W] after the last layer, rows at most
  // output_tokens; on the device, valid until the next call.
  const Rows& head(std::span<const float> hidden);
  // Passes the inputs of all linears of the layers to `observer` from now on; nullptr: no observer.
  void observe(Observer* observer) { decoder_.observe(observer); }

  const ForwardLimits& limits() const { return limits_; }
  const ModelConfig& config() const { return config_; }
  Backend& backend() { return backend_; }
  std::string rope_note() const { return work_.rope_note(); }
  // Linears with a moving scale: their counters, and their states to save and restore.
  std::span<OnlineInput> online() { return work_.online(); }

 private:
  void check(const Batch& batch, const SequenceState& state);
  void append(const Batch& batch, const SequenceState& state);
  void step(RankStep::Wanted wanted, const Batch& batch, const SequenceState& state);
  void run(RankStep::Wanted wanted, const Batch& batch, const KvLayers& kv);
  Embedding embedding(const Batch& batch) const;

  const ModelConfig& config_;
  const Weights& weights_;
  Backend& backend_;
  ForwardLimits limits_;
  RankPlace place_;
  Workspace work_;
  Collectives ranks_;
  Decoder decoder_;
  // Members that describe the current step:
  std::vector<SequenceRun> runs_;
  std::vector<FixedStates::StepStates> states_;  // [runs]
  BatchView batch_;
  std::vector<std::int32_t> positions_;  // [T]
};

}  // namespace leq
