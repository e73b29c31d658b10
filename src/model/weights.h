// The weights of a model, bound to the tensors of a .leq file under their names there.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backend/decoder_parts.h"
#include "backend/memory.h"
#include "format/leq_reader.h"
#include "model/linear_sites.h"
#include "model/model_config.h"
#include "model/sharding.h"
#include "model/tensor_list.h"

namespace leq {

// A linear of a layer, at its site.
struct LayerLinear : Linear {
  std::size_t site = 0;      // index in linear_sites of the layer
  std::string site_name;     // "qkv": inputs of one site share blocks of activations (workspace.h)
  Axis axis = Axis::stream;  // of the inputs
  std::int64_t rows_per_token = 1;  // of its block of activations: k where experts share one
  bool values_too = false;          // the block keeps f32 beside the codes: a router reads them
  bool exact = false;               // its few rows are stored in f32, whatever the others are

  bool reads_norm() const { return axis == Axis::stream; }
};

struct AttentionWeights {
  AttentionConfig config;
  Norm norm;
  LayerLinear qkv;  // segments q, k, v, and the output gate
  std::optional<Norm> q_norm, k_norm;
  std::vector<float> key_bias;        // of segment k, on the host [H_kv d]; empty without one
  std::vector<float> key_centre;      // kv_layers.h [H_kv d], on the host; empty: none
  const float* key_offset = nullptr;  // the same where operations read it
  LayerLinear o;
  std::optional<Norm> post_norm;  // of what o adds to the stream
};

struct DeltaNetWeights {
  DeltaNetConfig config;
  Norm norm;
  LayerLinear in;     // segments qkv, z
  LayerLinear gates;  // segments b, a, in f32; reads the same input
  LayerLinear out;
  const float* conv = nullptr;     // [taps][channels], the current token's tap last
  const float* a_log = nullptr;    // [H_v]
  const float* dt_bias = nullptr;  // [H_v]
  Norm head_norm;                  // [d_v], over each value head
};

struct DenseMlpWeights {
  DenseMlpConfig config;
  Norm norm;
  LayerLinear gate_up;  // segments gate, up; or up alone
  LayerLinear down;
  std::optional<Norm> post_norm;  // of what down adds to the stream
};

// An expert of each row, whose output is taken times sigmoid(gate x).
struct SharedExpertWeights {
  LayerLinear gate;  // [1][W]
  LayerLinear gate_up, down;
};

struct ExpertsMlpWeights {
  ExpertsMlpConfig config;
  Norm norm;
  LayerLinear router;                // [E][W]
  std::vector<LayerLinear> gate_up;  // [E], segments gate, up
  std::vector<LayerLinear> down;     // [E]
  std::optional<SharedExpertWeights> shared;
};

// Weights of one layer; its variants have the alternatives of the variants of LayerConfig.
struct LayerWeights {
  std::variant<AttentionWeights, DeltaNetWeights> mixer;
  std::variant<DenseMlpWeights, ExpertsMlpWeights> mlp;

  AttentionWeights& attention() { return std::get<AttentionWeights>(mixer); }
  const AttentionWeights& attention() const { return std::get<AttentionWeights>(mixer); }
  DenseMlpWeights& dense_mlp() { return std::get<DenseMlpWeights>(mlp); }
  const DenseMlpWeights& dense_mlp() const { return std::get<DenseMlpWeights>(mlp); }
  const ExpertsMlpWeights* experts_mlp() const { return std::get_if<ExpertsMlpWeights>(&mlp); }
  // All linears that may be quantized, in the order of linear_sites.
  std::vector<const LayerLinear*> linears() const;
};

// What makes the first stream of a head of multi-token prediction (ModelConfig::reads_hidden).
struct MtpInput {
  Norm embedding_norm, hidden_norm;
  LayerLinear fc_embedding, fc_hidden;  // [W][W]
};

// Of one rank where several share a model: what it computes of each linear. Embeddings, norms and
// smoothing vectors are whole, as is what the host keeps of the keys.
struct Weights {
  WeightView token_embedding;                    // [V][W]
  std::optional<WeightView> position_embedding;  // [context][W]
  std::optional<MtpInput> mtp_input;
  std::vector<LayerWeights> layers;
  Norm final_norm;
  LayerLinear head;                // [V][W]
  std::vector<Buffer> memory;      // what the views point to, where the device has its own
  std::uint64_t memory_bytes = 0;  // its size; 0 where the views borrow
  UploadReport upload;             // how it was filled

  // Codes, scales and sums of the layers' linears and the head: what a step of so many tokens reads
  // (of experts what it reads on average, where a router sends each token anywhere).
  std::uint64_t bytes_of_step(std::int64_t tokens) const;
  std::uint64_t bytes_per_token() const { return bytes_of_step(1); }
};

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
// Of the rank at `place`: nothing else goes to a device with memory of its own.
Weights bind_weights(const LeqReader& file, const ModelConfig& config, DeviceMemory& memory,
                     const RankPlace& place);

// Throws Error where `file` does not hold exactly what `config` calls for: as bind_weights, and
// where a tensor is left over, which means another configuration than the one it was made with.
void check_tensors(const LeqReader& file, const ModelConfig& config);

// Finds a stored tensor by name; nullptr where there is none.
using TensorFinder = std::function<const StoredTensor*(std::string_view name)>;
// Those of a model's head of multi-token prediction, for mtp_model(its configuration).
TensorFinder mtp_tensors(TensorFinder find);
// The same for tensors from elsewhere (synthetic ones); `source` names them in errors.
Weights bind_weights(const TensorFinder& find, std::string_view source, const ModelConfig& config,
                     DeviceMemory& memory);
Weights bind_weights(const TensorFinder& find, std::string_view source, const ModelConfig& config,
                     DeviceMemory& memory, const RankPlace& place);

}  // namespace leq
