// The weights of a model, bound to the tensors of a .leq file under their names there.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/decoder_parts.h"
#include "backend/memory.h"
#include "format/leq_reader.h"
#include "model/model_config.h"

namespace leq {

struct Block {
  Norm attention_norm;
  Linear qkv;  // segments q, k, v
  std::optional<Norm> q_norm, k_norm;
  std::vector<float> key_bias;        // of segment k, on the host [H_kv d]; empty without one
  std::vector<float> key_centre;      // kv_layers.h [H_kv d], on the host; empty: none
  const float* key_offset = nullptr;  // the same where operations read it
  Linear o;
  Norm mlp_norm;
  Linear gate_up;  // segments gate, up; or up alone
  Linear down;
};

struct Weights {
  WeightView token_embedding;                    // [V][W]
  std::optional<WeightView> position_embedding;  // [context][W]
  std::vector<Block> blocks;
  Norm final_norm;
  Linear head;                     // [V][W]
  std::vector<Buffer> memory;      // what the views point to, where the device has its own
  std::uint64_t memory_bytes = 0;  // its size; 0 where the views borrow
  UploadReport upload;             // how it was filled

  // Codes, scales and sums of the block linears and the head: what one decoded token reads.
  std::uint64_t bytes_per_token() const;
};

// Names of the tensors of a .leq file: "token_embedding", "layers.3.q", "layers.3.q.bias", ...
std::string layer_tensor(std::int64_t layer, std::string_view part);
// "layers.3.down.inv_smooth", a vector [K] f32 that a file may have beside any linear: its inputs
// are multiplied by it at run time. Linears that share an input (q, k, v; gate, up) share the
// vector of the first of them.
std::string inv_smooth_tensor(std::string_view linear);
// "layers.3.key_mean", a vector [H_kv d] f32 that a file may have: the mean of the layer's keys
// before RoPE, as calibration saw them. Of models without norms of keys.
inline constexpr std::string_view kKeyMean = "key_mean";

// Binds and checks every tensor that `config` calls for: present, shape, schemes that go together.
// Where `memory` has no place of its own for weights, the views borrow from `file`. Throws Error
// naming the tensor, expected and found.
Weights bind_weights(const LeqReader& file, const ModelConfig& config, DeviceMemory& memory);

// Throws Error where `file` does not hold exactly what `config` calls for: as bind_weights, and
// where a tensor is left over, which means another configuration than the one it was made with.
void check_tensors(const LeqReader& file, const ModelConfig& config);

// Finds a stored tensor by name; nullptr where there is none.
using TensorFinder = std::function<const StoredTensor*(std::string_view name)>;
// The same for tensors from elsewhere (synthetic ones); `source` names them in errors.
Weights bind_weights(const TensorFinder& find, std::string_view source, const ModelConfig& config,
                     DeviceMemory& memory);

}  // namespace leq
