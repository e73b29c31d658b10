// The unquantized blocks of a checkpoint, with optional rewrites, and the hidden states that are
// the input of the first block.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/model_config.h"
#include "model/tensor_list.h"
#include "quantize/calibration/calibration_data.h"
#include "quantize/calibration/hidden_states.h"
#include "quantize/methods/tensor_plan.h"
#include "quantize/rewrites/block_tensors.h"

namespace leq {

// Rewrites of whole blocks that preserve the model's function, applied in this order.
struct BlockRewrites {
  bool fold_attention_biases = false;               // see quantize/rewrites/fold.h
  std::optional<std::uint64_t> rotation_seed = {};  // see quantize/rewrites/rotate.h

  bool any() const { return fold_attention_biases || rotation_seed.has_value(); }
};
// Throws Error if the model has no attention biases to fold, and as rotated() does.
ModelConfig rewritten_config(const ModelConfig& config, const BlockRewrites& rewrites);

// A matrix of zeros with the shape of a tensor.
Matrix matrix_of(const Shape& shape);

class BlockSource {
 public:
  // `config` and `tensors` are those of the checkpoint and must outlive the source.
  BlockSource(const ModelConfig& config, std::span<const TensorInput> tensors,
              const BlockRewrites& rewrites);

  const ModelConfig& config() const { return config_; }  // after the rewrites
  BlockTensors load(std::int64_t layer) const;
  // Computes the embeddings of the first hidden.windows() windows from the unquantized tables.
  void embed(const CalibrationData& data, HiddenStates& hidden, Backend& backend) const;

 private:
  const ModelConfig& source_config_;
  BlockRewrites rewrites_;
  ModelConfig config_;
  std::map<std::string, const TensorInput*> tensors_;
};

}  // namespace leq
