#include "quantize/pipeline/block_source.h"

#include <algorithm>

#include "base/error.h"
#include "model/weights.h"
#include "quantize/rewrites/fold.h"

namespace leq {

ModelConfig rewritten_config(const ModelConfig& config, bool fold_attention_biases) {
  if (!fold_attention_biases) return config;
  const bool has_biases = std::ranges::any_of(config.layers, [](const LayerConfig& layer) {
    return layer.attention() != nullptr && layer.attention()->qkv_bias;
  });
  require(has_biases, Setting{"fold_attention_biases"},
          ": the model has no biases of q, k and v; leave it out");
  return with_attention_biases_folded(config);
}

Matrix matrix_of(const Shape& shape) {
  Matrix matrix;
  matrix.rows = shape.size() == 2 ? shape[0] : 1;
  matrix.columns = shape.back();
  matrix.values.resize(static_cast<std::size_t>(matrix.rows * matrix.columns));
  return matrix;
}

BlockSource::BlockSource(const ModelConfig& config, std::span<const TensorInput> tensors,
                         bool fold_attention_biases)
    : source_config_(config),
      fold_attention_biases_(fold_attention_biases),
      config_(rewritten_config(config, fold_attention_biases)) {
  for (const TensorInput& tensor : tensors) tensors_[tensor.name] = &tensor;
}

BlockTensors BlockSource::load(std::int64_t layer) const {
  BlockTensors block;
  for (const TensorSpec& spec : layer_tensors(source_config_, layer)) {
    const TensorInput& tensor = *tensors_.at(layer_tensor(layer, spec.name));
    Matrix matrix = matrix_of(tensor.shape);
    tensor.read(0, tensor.shape.size() == 2 ? matrix.rows : matrix.columns, matrix.values);
    if (tensor.drop) tensor.drop();
    block.parts[spec.name] = std::move(matrix);
  }
  if (fold_attention_biases_) fold_attention_biases(block, source_config_, layer);
  return block;
}

void BlockSource::embed(const CalibrationData& data, HiddenStates& hidden) const {
  const TensorInput& table = *tensors_.at("token_embedding");
  const TensorInput* positions =
      config_.learned_positions ? tensors_.at("position_embedding") : nullptr;
  const auto width = static_cast<std::size_t>(config_.width);
  std::vector<float> states(static_cast<std::size_t>(hidden.numbers())), place(width);
  for (std::int64_t window = 0; window < hidden.windows(); ++window) {
    const auto& tokens = data.windows[static_cast<std::size_t>(window)];
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const std::span<float> row = std::span(states).subspan(t * width, width);
      table.read(tokens[t], 1, row);
      if (positions != nullptr) {
        positions->read(static_cast<std::int64_t>(t), 1, place);
        for (std::size_t i = 0; i < width; ++i) row[i] += place[i];
      }
    }
    hidden.write(window, states);
  }
}

}  // namespace leq
