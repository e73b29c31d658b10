// The layers of a decoder as data. Each layer has two sublayers, with a norm before each:
//   x += mixer(norm(x)); x += mlp(norm(x))
// A kind of layer is an alternative of one of the variants below. Its linears are listed in
// linear_sites.cpp, its weights are in weights.h and its forward pass is in decoder.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

namespace leq {

enum class Sublayer : std::uint8_t { mixer, mlp };

// q of position p is multiplied by 1 + beta ln(1 + floor(p / period)) after RoPE, which makes
// attention sharper at late positions of long texts (Ministral 3, Llama 4).
struct QueryTemperature {
  double beta = 0;
  std::int64_t period = 0;  // 0: no temperature

  bool operator==(const QueryTemperature&) const = default;
};

// Softmax attention over keys and values in the cache.
struct AttentionConfig {
  std::int32_t window = 0;   // positions that a query sees; 0 = all up to its own
  bool rotary = true;        // RoPE on q and k
  bool qk_norm = false;      // norms of q and k over each head, before RoPE
  bool qkv_bias = false;     // q, k and v have biases
  bool output_bias = false;  // o has a bias
  // RoPE rotates the first `rotary_dims` channels of a head as pairs (i, i + rotary_dims / 2), and
  // leaves the others unchanged; 0 = all channels.
  std::int32_t rotary_dims = 0;
  // A fourth linear reads the layer's input, and o reads attention(q, k, v) * sigmoid(gate).
  bool output_gate = false;
  QueryTemperature temperature = {};

  bool operator==(const AttentionConfig&) const = default;
};

// Gated DeltaNet (Yang et al. 2024): linear attention over a state of fixed size, without positions
// (backend/decoder_parts.h has the formulas). Value head h reads key head h / (H_v / H_k).
struct DeltaNetConfig {
  std::int64_t key_heads = 0;    // H_k, heads of queries and keys
  std::int64_t value_heads = 0;  // H_v, heads of values, a multiple of H_k
  std::int64_t key_dim = 0;      // d_k
  std::int64_t value_dim = 0;    // d_v
  std::int64_t conv_taps = 0;    // taps of the convolution over time, current token included

  std::int64_t keys() const { return key_heads * key_dim; }
  std::int64_t values() const { return value_heads * value_dim; }
  std::int64_t channels() const { return 2 * keys() + values(); }  // channels of the convolution

  bool operator==(const DeltaNetConfig&) const = default;
};

struct DenseMlpConfig {
  std::int64_t hidden = 0;  // F, intermediate_size
  bool gated = true;        // swiglu(gate, up); false: gelu_new(up)
  bool bias = false;

  bool operator==(const DenseMlpConfig&) const = default;
};

// A mixture of gated MLPs. A router picks k of them for each row: p = softmax(router(x)); the k
// largest p are chosen, on ties the lower id; y = sum of p_e * down_e(swiglu(gate_e x, up_e x)) in
// ascending order of e.
struct ExpertsMlpConfig {
  std::int64_t experts = 0;        // E
  std::int64_t active = 0;         // k, number of experts of a row
  std::int64_t hidden = 0;         // F of each expert
  bool normalized = false;         // the k probabilities are divided by their sum
  std::int64_t shared_hidden = 0;  // F of the shared expert, times sigmoid(gate x); 0 = none

  bool operator==(const ExpertsMlpConfig&) const = default;
};

struct LayerConfig {
  std::variant<AttentionConfig, DeltaNetConfig> mixer;
  std::variant<DenseMlpConfig, ExpertsMlpConfig> mlp;

  // Returns nullptr if the layer has another kind of mixer.
  const AttentionConfig* attention() const { return std::get_if<AttentionConfig>(&mixer); }
  AttentionConfig* attention() { return std::get_if<AttentionConfig>(&mixer); }
  const DeltaNetConfig* delta_net() const { return std::get_if<DeltaNetConfig>(&mixer); }
  const DenseMlpConfig* dense_mlp() const { return std::get_if<DenseMlpConfig>(&mlp); }
  DenseMlpConfig* dense_mlp() { return std::get_if<DenseMlpConfig>(&mlp); }
  const ExpertsMlpConfig* experts_mlp() const { return std::get_if<ExpertsMlpConfig>(&mlp); }
  ExpertsMlpConfig* experts_mlp() { return std::get_if<ExpertsMlpConfig>(&mlp); }

  bool operator==(const LayerConfig&) const = default;
};

// Layers that differ at most in their windows, which file version 1.0 can express.
struct UniformLayers {
  std::int64_t count = 0;
  AttentionConfig attention = {};  // its `window` is used if `windows` is empty
  DenseMlpConfig mlp = {};
  std::vector<std::int32_t> windows = {};  // [count], or empty

  std::vector<LayerConfig> layers() const;
};
// Returns nullopt if the layers differ in more than their windows.
std::optional<UniformLayers> uniform_layers(std::span<const LayerConfig> layers);

}  // namespace leq
