// The linear sites of a layer: the places where one or several linears read the same input. All
// code that handles the linears of a model iterates over its sites: tensor list, binding,
// workspace, calibration, folds, quantization, sharding, plans and synthetic models. The sites of a
// layer kind are listed in linear_sites.cpp and nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/operations.h"
#include "format/tensor_source.h"
#include "model/model_config.h"

namespace leq {

// The axis along which ranks divide the rows of a weight, or the columns of an input
// (sharding.h).
enum class Axis : std::uint8_t {
  stream,          // W
  query_heads,     // H d
  kv_heads,        // H_kv d
  mlp,             // F, or W channels of a short convolution: in groups of 128
  vocabulary,      // V
  delta_channels,  // 2 H_k d_k + H_v d_v: q, k and v of Gated DeltaNet, each divided by heads
  delta_values,    // H_v d_v
  whole,           // not divided: every rank computes all rows (router outputs)
};

struct NormSpec {
  std::string name;        // "attention_norm"
  std::int64_t width = 0;  // length of its gain
  NormKind kind = NormKind::rms;
};

struct LinearSpec {
  std::string name;          // "q"
  std::int64_t outputs = 0;  // N
  Axis axis = Axis::stream;  // axis of its rows
  bool bias = false;
  // A linear with few rows that is never quantized (a router, gates). It is stored in f32 and reads
  // the site's input before quantization.
  bool exact = false;
  double share = 1;    // share of a step's rows that it reads: k / E for routed experts
  bool apart = false;  // is exact, and reads a norm of the stream of its own
};

// A parameter vector that an operation of the sublayer other than a linear reads, or a linear that
// reads the stream itself; stored in f32.
struct VectorSpec {
  std::string name;  // "delta_conv"
  std::int64_t count = 0;
  std::int64_t columns = 0;  // of a linear [count][columns]
};

struct LinearSite {
  std::string name;  // "qkv"; the same name in all layers of a kind
  Sublayer sublayer = Sublayer::mixer;
  std::int64_t inputs = 0;               // K, the same for all its weights
  Axis axis = Axis::stream;              // axis of the inputs
  std::vector<LinearSpec> weights = {};  // in the order of the concatenated outputs
  // The norm of the residual stream that produces the input; nullopt: the input is the result of an
  // operation in the sublayer, of which each rank computes its own columns.
  std::optional<NormSpec> norm = {};
  // The linear of an earlier site ("v", "up") for which each input column is proportional to one of
  // its output rows, so that the column's scale can be moved to that row; empty: none.
  std::string producer = {};
  std::vector<NormSpec> head_norms = {};  // norms over each head of the outputs: "q_norm", "k_norm"
  std::vector<VectorSpec> vectors = {};   // read by the operation that follows the linears
  // A name ("experts.down") shared by several sites that have one activation block. These sites are
  // adjacent, independent of each other, and have inputs of one format. Empty: no shared block.
  std::string block = {};
  KvHeads kv_heads = {};  // of attention

  const std::string& block_name() const { return block.empty() ? name : block; }
  double share() const;  // share of a step's rows that it reads
  // The weights that may be quantized.
  std::vector<LinearSpec> coded_weights() const;
};

// Tensor name of a part of a layer with experts: "experts.3.gate", "shared.up".
std::string expert_part(std::int64_t expert, std::string_view part);

// The sites of one layer in the order of a forward pass.
std::vector<LinearSite> linear_sites(const ModelConfig& config, std::int64_t layer);

// The tensors of a model in file order: name, shape and role of each. Import, quantization and
// binding all use this list.

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

// A matrix [W][W], stored as a vector of rows: ModelConfig::embedding_projection.
inline constexpr std::string_view kEmbeddingProjection = "embedding_projection";

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
