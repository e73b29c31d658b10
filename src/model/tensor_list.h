// The tensors of a model in file order: name, shape and role of each. Import, quantization and
// binding all use this list.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/tensor_source.h"
#include "model/linear_sites.h"
#include "model/model_config.h"

namespace leq {

// The role of a tensor. Linears are distinguished by the origin of their inputs, because the best
// format depends on it.
enum class TensorRole : std::uint8_t {
  vector,  // a norm, a bias, or a vector that an operation reads
  token_embedding,
  position_embedding,
  normed_linear,  // reads the normed residual stream: q, k, v; gate, up
  mixer_output,   // reads the mixer's result and adds to the stream: o
  mlp_output,     // reads the MLP's result and adds to the stream: down
  exact_linear,   // reads the normed stream; never quantized, stored in f32
  head,
};

struct TensorSpec {
  std::string name;  // "layers.3.q"
  Shape shape;       // [N, K] or [n]
  TensorRole role = TensorRole::vector;
};

// Names of the tensors of a .leq file: "token_embedding", "layers.3.q", "layers.3.q.bias", ...
std::string layer_tensor(std::int64_t layer, std::string_view part);

// All tensors that a file must have. It may also have inv_smooth vectors (inv_smooth_tensor in
// model/weights.h), which are bound if they are present.
std::vector<TensorSpec> tensor_list(const ModelConfig& config);
// The tensors of one layer, with their names within the layer: "q", "q.bias".
std::vector<TensorSpec> layer_tensors(const ModelConfig& config, std::int64_t layer);

// Whether a multi-token prediction head uses its model's tensor of this name (embedding, head).
bool is_shared_with_mtp(std::string_view name);

// Whether a tensor is a linear of a layer that may be quantized.
bool is_block_linear(TensorRole role);
TensorRole role_of(const LinearSite& site, const LinearSpec& weight);

// Parameters of all tensors in the list, and of the layers' linears alone.
std::int64_t parameter_count(const ModelConfig& config);
std::int64_t block_linear_parameters(const ModelConfig& config);
// Parameters of the layers' linears that one token uses; of experts only the active ones count.
double active_linear_parameters(const ModelConfig& config);

}  // namespace leq
