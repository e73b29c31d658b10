// The tensors of a model in file order: name, shape and what each is for. Import, quantization and
// binding agree through this list.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/tensor_source.h"
#include "model/linear_sites.h"
#include "model/model_config.h"

namespace leq {

// What a tensor is. Linears of the layers differ in what their input is: of which format it is best
// depends on it.
enum class TensorRole : std::uint8_t {
  vector,  // a norm, a bias, numbers that an operation computes with
  token_embedding,
  position_embedding,
  normed_linear,  // reads the normed residual stream: q, k, v; gate, up
  mixer_output,   // reads what the mixer's own operation made, adds to the stream: o
  mlp_output,     // the same of the MLP: down
  exact_linear,   // reads the normed stream beside others and is never quantized: f32
  head,
};

struct TensorSpec {
  std::string name;  // "layers.3.q"
  Shape shape;       // [N, K] or [n]
  TensorRole role = TensorRole::vector;
};

// Names of the tensors of a .leq file: "token_embedding", "layers.3.q", "layers.3.q.bias", ...
std::string layer_tensor(std::int64_t layer, std::string_view part);

// All that a file must have. Beside them it may have inv_smooth vectors (inv_smooth_tensor in
// model/weights.h), which are bound where they are present.
std::vector<TensorSpec> tensor_list(const ModelConfig& config);
// Those of one layer, by their names within it: "q", "q.bias".
std::vector<TensorSpec> layer_tensors(const ModelConfig& config, std::int64_t layer);

// Whether a head of multi-token prediction reads its model's tensor of this name: embedding, head.
bool is_shared_with_mtp(std::string_view name);

// Whether a tensor is one of a layer's linears that may be quantized.
bool is_block_linear(TensorRole role);
TensorRole role_of(const LinearSite& site, const LinearSpec& weight);

// Parameters of all tensors of the list, and those of the layers' linears alone.
std::int64_t parameter_count(const ModelConfig& config);
std::int64_t block_linear_parameters(const ModelConfig& config);
// Of the latter those that one token meets: of experts the share of the active ones.
double active_linear_parameters(const ModelConfig& config);

}  // namespace leq
