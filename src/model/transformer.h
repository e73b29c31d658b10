// A decoder: weights and workspace. forward() is all it does. Where ranks share the model, each has
// a transformer of its own weights and all do the same step (docs/ranks.md).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "cache/kv_cache.h"
#include "comm/communicator.h"
#include "model/batch.h"
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

  // One step over a batch: appends its tokens to their sequences in `cache` and returns the logits
  // [outputs, V] on the device, valid until the next call. Throws Error where the batch is larger
  // than the limits, a token is no id of the model, the context is full, or a row is not finite.
  // After an error cache and moving scales are as they were; a device that works behind the host's
  // back tells of its rows later (Operations::synchronize), when both have moved on.
  const Rows& forward(const Batch& batch, KvCache& cache);

  // The same, but returns what the head would read: the normed last hidden states [outputs, W].
  const Rows& hidden(const Batch& batch, KvCache& cache);

  // The step that the leader began, on another rank; its pages are `pages`.
  void follow(const RankStep& step, const KvPages& pages);

  // One half of one block over hidden states of a whole sequence, in place: `hidden` [T][W], T at
  // most batch_tokens. `cache` must be empty and holds the sequence's keys and values while the
  // attention half runs. Returns false where the observer wanted no more; `hidden` is unchanged
  // then.
  bool run_half(BlockHalf half, std::int64_t layer, std::span<float> hidden, KvCache& cache);
  // `observer` sees the inputs of all linears of the blocks from now on; nullptr for nobody.
  void observe(Observer* observer) { observer_ = observer; }

  const ForwardLimits& limits() const { return limits_; }
  const ModelConfig& config() const { return config_; }
  Backend& backend() { return backend_; }
  const std::string& rope_note() const { return work_.frequencies.note; }
  // Linears with a moving scale: their counters, and their states to save and to restore.
  std::span<OnlineInput> online() { return work_.online(); }

 private:
  void check(const Batch& batch, const KvCache& cache);
  Embedding embedding(const Batch& batch) const;
  void append(const Batch& batch, KvCache& cache);
  void give_back(KvCache& cache);
  // Calls `work`; where it throws, cache and moving scales are as before.
  void undone_by_errors(KvCache& cache, const std::function<void()>& work);
  // Calls `work`, one step; where it throws on one of several ranks, all end.
  void ended_by_errors(const std::function<void()>& work);
  Step step_of(const Batch& batch, const KvCache& cache);
  // Sends the step to the other ranks.
  void lead(RankStep::Wanted wanted, const Batch& batch, const KvLayers& kv);
  void run(const Batch& batch, const KvLayers& kv);
  void run_hidden(const Batch& batch, const KvLayers& kv);
  void blocks(const Batch& batch, const KvLayers& kv);
  void head_part(const Batch& batch);
  void pick_outputs(const Batch& batch);
  void gather(const SharedBlock& block, std::int64_t tokens, Receivers to, std::string_view site);
  void seal(const KvLayers& kv);
  bool attention_part(std::int64_t layer, const KvLayer& kv);
  bool mlp_part(std::int64_t layer);
  bool goes_on(Reader reader, const Rows& input);

  const ModelConfig& config_;
  const Weights& weights_;
  Backend& backend_;
  ForwardLimits limits_;
  Communicator& ranks_;
  RankPlace place_;
  Workspace work_;
  Observer* observer_ = nullptr;
  // Of the forward in work:
  std::vector<SequenceRun> runs_;
  BatchView batch_;
  std::vector<std::int32_t> positions_;  // [T]
  std::vector<KvLayer> sealed_layers_;   // of the step, where the cache has blocks to seal
  std::vector<OnlineState> online_before_;
  std::vector<std::byte> command_;
};

}  // namespace leq
