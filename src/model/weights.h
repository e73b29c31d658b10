// The weights of a model, bound to the tensors of a .leq file by their names.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backend/memory.h"
#include "backend/operations.h"
#include "format/leq_reader.h"
#include "model/linear_sites.h"
#include "model/model_config.h"
#include "model/sharding.h"

namespace leq {

// A linear of a layer, with its site.
struct LayerLinear : Linear {
  std::size_t site = 0;      // index in the layer's linear_sites
  std::string site_name;     // "qkv"; linears of one site share activation blocks (workspace.h)
  Axis axis = Axis::stream;  // axis of the inputs
  std::int64_t rows_per_token = 1;  // in its activation block; k if experts share the block
  bool values_too = false;          // the block also keeps f32 values, which a router reads
  bool exact = false;               // has few rows, always stored in f32

  bool reads_norm() const { return axis == Axis::stream; }
};

struct AttentionWeights {
  AttentionConfig config;
  Norm norm;
  LayerLinear qkv;  // segments q, k, v and, if there is one, the output gate
  std::optional<Norm> q_norm, k_norm, v_norm;
  std::vector<float> key_bias;        // bias of segment k [H_kv d] on the host; empty: none
  std::vector<float> key_centre;      // see kv_layers.h; [H_kv d] on the host; empty: none
  const float* key_offset = nullptr;  // key_centre in the device's memory
  const float* sinks = nullptr;       // [H] of all ranks; null: none
  LayerLinear o;
  std::optional<Norm> post_norm;  // norm of o's output
};

struct DeltaNetWeights {
  DeltaNetConfig config;
  Norm norm;
  LayerLinear in;     // segments qkv, z
  LayerLinear gates;  // segments b, a, in f32; same input as `in`
  LayerLinear out;
  const float* conv = nullptr;     // [taps][channels], the current token's tap last
  const float* a_log = nullptr;    // [H_v]
  const float* dt_bias = nullptr;  // [H_v]
  Norm head_norm;                  // [d_v] norm of each value head
};

struct ShortConvWeights {
  ShortConvConfig config;
  Norm norm;
  LayerLinear in;  // segments b, c, x
  LayerLinear out;
  const float* conv = nullptr;  // [taps][W] of all ranks, the current token's tap last
};

struct DenseMlpWeights {
  DenseMlpConfig config;
  Norm norm;
  LayerLinear gate_up;  // segments gate, up; or up alone
  LayerLinear down;
  std::optional<Norm> post_norm;  // norm of down's output
};

// An expert that all rows use; its output is multiplied by sigmoid(gate x).
struct SharedExpertWeights {
  LayerLinear gate_up, down;
};

// A dense MLP beside experts, and what they have in addition.
struct BesideWeights {
  DenseMlpWeights dense;
  Norm router_norm, experts_post_norm, joined_post_norm;
  const float* router_scales = nullptr;  // [E]
};

struct ExpertsMlpWeights {
  ExpertsMlpConfig config;
  std::optional<BesideWeights> beside;
  Norm norm;
  LayerLinear router;                  // [E][W]; a shared expert's gate is row E
  const float* choice_bias = nullptr;  // [E]; null: none
  std::vector<LayerLinear> gate_up;    // [E], segments gate, up
  std::vector<LayerLinear> down;       // [E]
  std::optional<SharedExpertWeights> shared;
};

// The part of a layer that reads its input of the token.
struct LayerInputWeights {
  LayerLinear gate;        // [P][W]
  LayerLinear projection;  // [W][P]
  Norm post_norm;
};

// Weights of one layer. Its variants have the same alternatives as those of LayerConfig.
struct LayerWeights {
  std::variant<AttentionWeights, DeltaNetWeights, ShortConvWeights> mixer;
  std::variant<DenseMlpWeights, ExpertsMlpWeights> mlp;
  std::optional<LayerInputWeights> input;
  float scale = 1;  // factor on the layer's output

  AttentionWeights& attention() { return std::get<AttentionWeights>(mixer); }
  const AttentionWeights& attention() const { return std::get<AttentionWeights>(mixer); }
  DenseMlpWeights& dense_mlp() { return std::get<DenseMlpWeights>(mlp); }
  const DenseMlpWeights& dense_mlp() const { return std::get<DenseMlpWeights>(mlp); }
  const ExpertsMlpWeights* experts_mlp() const { return std::get_if<ExpertsMlpWeights>(&mlp); }
  // All linears that may be quantized, in the order of the layer's linear_sites.
  std::vector<const LayerLinear*> linears() const;
};

// Weights that compute the first residual stream of an MTP head (ModelConfig::reads_hidden).
struct MtpInput {
  Norm embedding_norm, hidden_norm;
  LayerLinear fc_embedding, fc_hidden;  // [W][W]
};

// The weights of a model or, if several ranks share it, those rows of each linear that one rank
// computes. Embeddings, norms, smoothing vectors and the host's key data are always complete.
struct Weights {
  WeightView token_embedding;                    // [V][W]
  std::optional<WeightView> position_embedding;  // [context][W]
  std::optional<MtpInput> mtp_input;
  // The inputs of all layers, beside each other: rows of a table and a linear of the embedding.
  std::optional<WeightView> layer_embedding;  // [V][L P]
  LayerLinear layer_projection;               // [L P][W]
  Norm layer_projection_norm;                 // [P]
  std::vector<LayerWeights> layers;
  Norm final_norm;
  LayerLinear head;                         // [V][W]
  std::vector<float> embedding_projection;  // [W][W] on the host; empty: none
  std::vector<Buffer> memory;               // memory of the views, if the device has its own
  std::uint64_t memory_bytes = 0;           // size of `memory`; 0 if the views point into the file
  UploadReport upload;                      // statistics of the upload

  // Bytes of codes, scales and sums of the layers' linears and the head that a step of `tokens`
  // tokens reads. For experts it is the expected number with random routing.
  std::uint64_t bytes_of_step(std::int64_t tokens) const;
  std::uint64_t bytes_per_token() const { return bytes_of_step(1); }
};

// "layers.3.down.inv_smooth": an optional vector [K] f32 by which a linear's inputs are multiplied
// at run time. Linears that share an input (q, k, v; gate, up) share the vector of the first of
// them.
std::string inv_smooth_tensor(std::string_view linear);
// The name in "layers.3.key_mean": an optional vector [H_kv d] f32, the mean of the layer's keys
// before RoPE that calibration measured. Only for models without norms of keys.
inline constexpr std::string_view kKeyMean = "key_mean";

// Binds and checks every tensor that `config` requires: presence, shape, compatible schemes. If
// `memory` is the host's, the views point into `file`. Throws Error naming the tensor, the expected
// and the found value.
Weights bind_weights(const LeqReader& file, const ModelConfig& config, DeviceMemory& memory);

// Throws Error unless `file` holds exactly the tensors that `config` requires: as bind_weights
// does, and if there are more tensors, because another configuration must then have made the file.
void check_tensors(const LeqReader& file, const ModelConfig& config);

// Finds a stored tensor by name; returns nullptr if there is none.
using TensorFinder = std::function<const StoredTensor*(std::string_view name)>;
// The tensors of a model's multi-token prediction head, for mtp_model(its configuration).
TensorFinder mtp_tensors(TensorFinder find);
// Like bind_weights, for tensors that are not in a file (synthetic); `source` is used in errors.
Weights bind_weights(const TensorFinder& find, std::string_view source, const ModelConfig& config,
                     DeviceMemory& memory);
// Binds only the share of weights of the rank at `place`, so that a device stores no others.
Weights bind_weights(const TensorFinder& find, std::string_view source, const ModelConfig& config,
                     DeviceMemory& memory, const RankPlace& place);

}  // namespace leq
