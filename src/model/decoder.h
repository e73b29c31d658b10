// The forward pass of a model over one batch, by the operations of a backend.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "cache/kv_cache.h"
#include "model/collectives.h"
#include "model/model_config.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace leq {

// Interface for callers that need the inputs of a layer's linears (calibration).
class Observer {
 public:
  virtual ~Observer() = default;
  // `input`'s first `tokens` rows are what `linear` reads, in f32 if it reads floats. Returns
  // whether the rest of this sublayer should run.
  virtual bool see(const LayerLinear& linear, const Rows& input, std::int64_t tokens) = 0;
};

// The input of one forward pass: any combination of tokens of prefill, decode and evaluation.
struct Batch {
  std::vector<std::int32_t> tokens;     // [T]; placeholder_id(row) if the device sampled the token
  std::vector<std::int32_t> sequences;  // [T] KV-cache sequence of each row
  std::vector<std::int32_t> outputs;    // rows whose logits are needed, ascending

  // Appends `count` tokens of one sequence; Want selects the tokens that get a row of logits.
  enum class Want { none, last, all };
  void add(std::int32_t sequence, const std::int32_t* first, std::int64_t count, Want want) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (want == Want::all || (want == Want::last && i + 1 == count)) {
        outputs.push_back(static_cast<std::int32_t>(tokens.size()));
      }
      tokens.push_back(first[i]);
      sequences.push_back(sequence);
    }
  }
  void clear() {
    tokens.clear();
    sequences.clear();
    outputs.clear();
  }
};

// The forward pass of all model families, from the token ids of a step to its logits, as
// straight-line code over a device's operations. Communication of ranks is in collectives.h;
// positions, sequences and errors are handled by the caller (transformer.h).
class Decoder {
 public:
  // All arguments must outlive the decoder.
  Decoder(const ModelConfig& config, const Weights& weights, Backend& backend, Workspace& work,
          Collectives& ranks);

  // Workspace::x [T, W] = the embeddings; also the inputs of the layers, if they have any.
  void embed(const Embedding& embedding, std::int64_t tokens);
  // Runs the mixer of the layer whose keys and values layer `layer` reads on the current x.
  void fill_keys(std::int64_t layer, const BatchView& batch, const KvLayers& kv);
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
  bool run(const ShortConvWeights& weights, std::int64_t layer, const BatchView& batch,
           const KvLayers& kv);
  bool run(const DeltaNetWeights& weights, std::int64_t layer, const BatchView& batch,
           const KvLayers& kv);
  bool run(const DenseMlpWeights& weights, std::int64_t tokens, float scale);
  bool run(const ExpertsMlpWeights& weights, std::int64_t tokens, float scale);
  RowsFor norm(const Norm& norm, const LayerLinear& linear, std::int64_t tokens);
  void join_hidden(const MtpInput& input, std::int64_t tokens);
  void add_layer_input(std::int64_t layer, std::int64_t tokens);
  bool product(const DenseMlpWeights& weights, std::int64_t tokens);
  void branch(const RowsFor& input, std::int64_t tokens, const LayerLinear& linear,
              const Norm& post_norm);
  void add(const RowsFor& input, std::int64_t tokens, const LayerLinear& linear,
           const std::optional<Norm>& post_norm, float scale);
  bool wants_more(const LayerLinear& linear, const Rows& input, std::int64_t tokens);
  void quantize_closed_blocks(const BatchView& batch, const KvLayers& kv);

  const ModelConfig& config_;
  const Weights& weights_;
  Backend& backend_;
  Workspace& work_;
  Collectives& ranks_;
  Observer* observer_ = nullptr;
  std::vector<std::int64_t> cached_layers_;
  std::vector<std::int64_t> cache_layers_;  // [layers] index in the KV cache; -1: no attention
  std::vector<KvLayer> kv_layers_;          // layers of the current step, for quantize_kv_blocks
};

}  // namespace leq
