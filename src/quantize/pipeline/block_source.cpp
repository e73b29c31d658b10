#include "quantize/pipeline/block_source.h"

#include <algorithm>

#include "base/error.h"
#include "model/rotation.h"
#include "model/weights.h"
#include "quantize/rewrites/fold.h"
#include "quantize/rewrites/rotate.h"

namespace leq {
namespace {

// Rotates the hidden states [T][W] of windows as the engine does after the embedding.
class StreamRotation {
 public:
  StreamRotation(const ModelConfig& config, std::int64_t tokens, Backend& backend)
      : backend_(backend),
        tokens_(tokens),
        rows_(backend.allocate_rows(tokens, config.width, {})),
        table_(make_rotation(backend.memory(), rotation_factors(config), config.rotation.block,
                             config.norm)) {}

  void rotate(std::vector<float>& states) {
    backend_.assign(states, rows_);
    backend_.rotate(rows_, tokens_, table_, Direction::forward);
    backend_.download(rows_, tokens_, states);
  }

 private:
  Backend& backend_;
  std::int64_t tokens_;
  Rows rows_;
  RotationTable table_;
};

ModelConfig with_biases_folded(const ModelConfig& config, const BlockRewrites& rewrites) {
  return rewrites.fold_attention_biases ? with_attention_biases_folded(config) : config;
}

}  // namespace

ModelConfig rewritten_config(const ModelConfig& config, const BlockRewrites& rewrites) {
  const bool has_biases = std::ranges::any_of(config.layers, [](const LayerConfig& layer) {
    return layer.attention() != nullptr && layer.attention()->qkv_bias;
  });
  require(!rewrites.fold_attention_biases || has_biases, Setting{"fold_attention_biases"},
          ": the model has no biases of q, k and v; leave it out");
  const ModelConfig folded = with_biases_folded(config, rewrites);
  return rewrites.rotation_seed ? rotated(folded, *rewrites.rotation_seed) : folded;
}

Matrix matrix_of(const Shape& shape) {
  Matrix matrix;
  matrix.rows = shape.size() == 2 ? shape[0] : 1;
  matrix.columns = shape.back();
  matrix.values.resize(static_cast<std::size_t>(matrix.rows * matrix.columns));
  return matrix;
}

BlockSource::BlockSource(const ModelConfig& config, std::span<const TensorInput> tensors,
                         const BlockRewrites& rewrites)
    : source_config_(config), rewrites_(rewrites), config_(rewritten_config(config, rewrites)) {
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
  if (rewrites_.fold_attention_biases) fold_attention_biases(block, source_config_, layer);
  if (rewrites_.rotation_seed) {
    rotate_block(block, with_biases_folded(source_config_, rewrites_), config_.rotation, layer);
  }
  return block;
}

void BlockSource::embed(const CalibrationData& data, HiddenStates& hidden, Backend& backend) const {
  const TensorInput& table = *tensors_.at("token_embedding");
  const TensorInput* positions =
      config_.learned_positions ? tensors_.at("position_embedding") : nullptr;
  const auto width = static_cast<std::size_t>(config_.width);
  std::vector<float> states(static_cast<std::size_t>(hidden.numbers())), place(width);
  std::optional<StreamRotation> rotation;
  if (rewrites_.rotation_seed) rotation.emplace(config_, data.length, backend);
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
    if (rotation) rotation->rotate(states);
    hidden.write(window, states);
  }
}

}  // namespace leq
