// The forward pass of all model families, from the token ids of a step to its logits, as
// straight-line code over a device's operations. Communication of ranks is in collectives.h;
// positions, sequences and errors are handled by the caller (transformer.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "cache/kv_pages.h"
#include "model/collectives.h"
#include "model/model_config.h"
#include "model/observer.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace leq {

class Decoder {
 public:
  // All arguments must outlive the decoder.
  Decoder(const ModelConfig& config, const Weights& weights, Backend& backend, Workspace& work,
          Collectives& ranks);

  // Workspace::x [T, W] = the hidden states of the batch after all layers.
  void layers(const Embedding& embedding, const BatchView& batch, const KvLayers& kv);
  // Workspace::logits [outputs, V] = head(final_norm(rows of x)).
  void head(std::span<const std::int32_t> outputs);
  // Workspace::last [outputs, W] = final_norm(rows of x).
  void final_norm(std::span<const std::int32_t> outputs);

  // Runs one sublayer on the current x. Returns false if the observer ended it early, in which case
  // x is unchanged.
  bool sublayer(Sublayer which, std::int64_t layer, const BatchView& batch, const KvLayers& kv);
  // Passes the inputs of all linears of the layers to `observer` from now on; nullptr: no observer.
  void observe(Observer* observer) { observer_ = observer; }
  bool observed() const { return observer_ != nullptr; }

 private:
  bool run(const AttentionWeights& weights, std::int64_t layer, const BatchView& batch,
           const KvLayers& kv);
  bool run(const DeltaNetWeights& weights, std::int64_t layer, const BatchView& batch,
           const KvLayers& kv);
  bool run(const DenseMlpWeights& weights, std::int64_t tokens);
  bool run(const ExpertsMlpWeights& weights, std::int64_t tokens);
  RowsFor norm(const Norm& norm, const LayerLinear& linear, std::int64_t tokens);
  void join_hidden(const MtpInput& input, std::int64_t tokens);
  void add(const RowsFor& input, std::int64_t tokens, const LayerLinear& linear,
           const std::optional<Norm>& post_norm);
  bool wants_more(const LayerLinear& linear, const Rows& input, std::int64_t tokens);
  void quantize_closed_blocks(const BatchView& batch, const KvLayers& kv);

  const ModelConfig& config_;
  const Weights& weights_;
  Backend& backend_;
  Workspace& work_;
  Collectives& ranks_;
  Observer* observer_ = nullptr;
  std::vector<std::int64_t> attention_layers_;
  std::vector<std::int64_t> cache_layers_;  // [layers] index in the KV cache; -1: no attention
  std::vector<KvLayer> kv_layers_;          // layers of the current step, for quantize_kv_blocks
};

}  // namespace leq
