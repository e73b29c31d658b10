// The unquantized blocks of a checkpoint, with attention biases folded if requested, and the hidden
// states that are the input of the first block.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/model_config.h"
#include "model/tensor_list.h"
#include "quantize/calibration/calibration_data.h"
#include "quantize/calibration/hidden_states.h"
#include "quantize/methods/tensor_plan.h"
#include "quantize/rewrites/block_tensors.h"

namespace leq {

// `config`, with the biases of v and k folded if requested (quantize/rewrites/fold.h). Throws Error
// if the model has none.
ModelConfig rewritten_config(const ModelConfig& config, bool fold_attention_biases);

// A matrix of zeros with the shape of a tensor.
Matrix matrix_of(const Shape& shape);

class BlockSource {
 public:
  // `config` and `tensors` are those of the checkpoint and must outlive the source.
  BlockSource(const ModelConfig& config, std::span<const TensorInput> tensors,
              bool fold_attention_biases);

  const ModelConfig& config() const { return config_; }  // after the fold
  BlockTensors load(std::int64_t layer) const;
  // Computes the embeddings of the first hidden.windows() windows from the unquantized tables.
  void embed(const CalibrationData& data, HiddenStates& hidden) const;

 private:
  const ModelConfig& source_config_;
  bool fold_attention_biases_;
  ModelConfig config_;
  std::map<std::string, const TensorInput*> tensors_;
};

}  // namespace leq
