// A decoder: weights and workspace. forward() is all it does.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "cache/kv_cache.h"
#include "model/batch.h"
#include "model/model_config.h"
#include "model/observer.h"
#include "model/rope.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace leq {

class Transformer {
 public:
  // `config`, `weights` and `backend` must outlive the transformer.
  Transformer(const ModelConfig& config, const Weights& weights, Backend& backend,
              const ForwardLimits& limits);

  // One step over a batch: appends its tokens to their sequences in `cache` and returns the logits
  // [outputs, V] on the device, valid until the next call. Throws Error where the batch is larger
  // than the limits, a token is no id of the model, or the context is full (the cache is unchanged
  // then).
  const Rows& forward(const Batch& batch, KvCache& cache);

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
  const std::string& rope_note() const { return frequencies_.note; }
  // Linears with act online: their counters, and their states to save and to restore.
  std::span<OnlineInput> online() { return work_.online(); }

  // Bytes that the constructor asks of the backend, exactly, from the header alone.
  static std::size_t scratch_bytes(const ModelConfig& config, const Weights& weights,
                                   const Backend& backend, const ForwardLimits& limits);

 private:
  void check(const Batch& batch, const KvCache& cache);
  void append(const Batch& batch, KvCache& cache);
  Step step_of(const Batch& batch, const KvCache& cache);
  void run(const Batch& batch, const KvCache& cache);
  void head_part(const Batch& batch);
  bool attention_part(std::int64_t layer, const KvLayer& kv);
  bool mlp_part(std::int64_t layer);
  bool goes_on(Reader reader, const Rows& input);

  const ModelConfig& config_;
  const Weights& weights_;
  Backend& backend_;
  ForwardLimits limits_;
  RopeFrequencies frequencies_;
  RopeTable rope_;
  RotationTable rotation_;  // block 0 where the stream is not rotated
  Workspace work_;
  Observer* observer_ = nullptr;
  // Of the forward in work:
  std::vector<SequenceRun> runs_;
  BatchView batch_;
  std::vector<std::int32_t> positions_;  // [T]
};

}  // namespace leq
