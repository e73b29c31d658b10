// The tensors of a model in file order: name, shape and what each is for. Import, quantization and
// binding agree through this list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/tensor_source.h"
#include "model/model_config.h"

namespace leq {

// Who reads a 2-D tensor; vectors are norms and biases.
enum class TensorRole : std::uint8_t {
  vector,
  token_embedding,
  position_embedding,
  qkv,  // q, k, v
  o,
  gate_up,  // gate, up
  down,
  head,
};

struct TensorSpec {
  std::string name;  // "layers.3.q"
  Shape shape;       // [N, K] or [n]
  TensorRole role = TensorRole::vector;
};

// All that a file must have. Beside them it may have inv_smooth vectors (inv_smooth_tensor in
// model/weights.h), which are bound where they are present.
std::vector<TensorSpec> tensor_list(const ModelConfig& config);

// Whether a tensor is one of a block's linears.
bool is_block_linear(TensorRole role);

// Parameters of all tensors of the list, and those of the block linears alone.
std::int64_t parameter_count(const ModelConfig& config);
std::int64_t block_linear_parameters(const ModelConfig& config);

}  // namespace leq
