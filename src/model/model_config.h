// The layers of a decoder as data. Each layer has two sublayers, with a norm before each:
//   x += mixer(norm(x)); x += mlp(norm(x))
// A kind of layer is an alternative of one of the variants below. Its linears are listed in
// linear_sites.cpp, its weights are in weights.h and its forward pass is in decoder.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backend/backend.h"
#include "base/json.h"

namespace leq {

enum class Sublayer : std::uint8_t { mixer, mlp };

// q of position p is multiplied by 1 + beta ln(1 + floor(p / period)) after RoPE, which makes
// attention sharper at late positions of long texts (Ministral 3, Llama 4).
struct QueryTemperature {
  double beta = 0;
  std::int64_t period = 0;  // 0: no temperature

  bool operator==(const QueryTemperature&) const = default;
};

enum class RopeScalingKind : std::uint8_t {
  none,
  linear,
  dynamic,
  llama3,
  yarn,
  longrope,
  proportional
};

// Parameters of Hugging Face's rope_scaling / rope_parameters, with the same names.
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;       // llama3
  double high_freq_factor = 4.0;      // llama3
  std::int64_t original_context = 0;  // original_max_position_embeddings; 0 = not given
  double attention_factor = 0.0;      // yarn and longrope; 0 = not given
  double beta_fast = 32.0;            // yarn; 0 = not given
  double beta_slow = 1.0;             // yarn; 0 = not given
  double mscale = 0.0;                // yarn; 0 = not given
  double mscale_all_dim = 0.0;        // yarn; 0 = not given
  double rotated = 1.0;               // proportional: share of the pairs that are rotated
  bool truncate = true;               // yarn: round the correction range to whole dimensions
  // longrope: divisors of frequencies, for contexts up to the original one and for longer ones
  std::vector<double> short_factor = {};
  std::vector<double> long_factor = {};

  bool operator==(const RopeScaling&) const = default;
};

// The fields of a RopeScaling that are real numbers.
struct RopeScalingField {
  const char* name;
  double RopeScaling::*member;
};
std::span<const RopeScalingField> rope_scaling_fields();
// Reads the lists of longrope. Throws Error if they are no lists of numbers.
void read_rope_factors(const Json& json, std::string_view source, RopeScaling& scaling);
std::string_view rope_scaling_name(RopeScalingKind kind);  // "none", "linear", ...
std::optional<RopeScalingKind> parse_rope_scaling(std::string_view name);

// Rotary positions of a layer. Layers with equal ones share a table (Workspace::rope_of).
struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling = {};
  // RoPE rotates the first `dims` channels of a head as pairs (i, i + dims / 2), and leaves the
  // others unchanged; 0 = all channels.
  std::int32_t dims = 0;

  bool operator==(const RopeConfig&) const = default;
};

// Softmax attention over keys and values in the cache.
struct AttentionConfig {
  std::int32_t window = 0;  // positions that a query sees; 0 = all up to its own
  std::optional<RopeConfig> rope = RopeConfig();  // RoPE on q and k; nullopt: none
  bool qk_norm = false;                           // norms of q and k over each head, before RoPE
  bool v_norm = false;                            // norm of v over each head, with q's and k's
  bool qkv_bias = false;                          // q, k and v have biases
  bool output_bias = false;                       // o has a bias
  // A fourth linear reads the layer's input, and o reads attention(q, k, v) * sigmoid(gate).
  bool output_gate = false;
  QueryTemperature temperature = {};
  double query_scale = 0;   // factor on q k^T; 0: 1 / sqrt(d)
  bool sinks = false;       // each head has a learned score that only adds to the softmax's sum
  KvHeads own_heads = {};   // of this layer; {}: those of the model
  std::int64_t kv_of = -1;  // the earlier layer whose keys and values it reads; -1: its own
  // Queries also see later positions of their text; a window then reaches as far in both
  // directions.
  bool both_ways = false;

  bool operator==(const AttentionConfig&) const = default;
};

// Gated DeltaNet (Yang et al. 2024): linear attention over a state of fixed size, without positions
// (backend/operations.h has the formulas). Value head h reads key head h / (H_v / H_k).
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

// Gated short convolution (LFM2): a causal convolution over time of each of the W channels, between
// two gates (ShortConvShape in backend/operations.h).
struct ShortConvConfig {
  std::int64_t taps = 0;  // taps of the convolution, current token included

  bool operator==(const ShortConvConfig&) const = default;
};

struct DenseMlpConfig {
  std::int64_t hidden = 0;                   // F, intermediate_size
  bool gated = true;                         // down(f(gate) * up); false: down(f(up))
  Activation activation = Activation::silu;  // f
  bool bias = false;

  bool operator==(const DenseMlpConfig&) const = default;
};

// A mixture of gated MLPs. A router picks k of them for each row (Routing in backend/operations.h);
// y = sum of the weights w_e * down_e(f(gate_e x) * up_e x) in ascending order of e.
struct ExpertsMlpConfig {
  std::int64_t experts = 0;        // E
  std::int64_t active = 0;         // k, number of experts of a row
  std::int64_t hidden = 0;         // F of each expert
  bool normalized = false;         // the k probabilities are divided by their sum
  bool sigmoid = false;            // p = sigmoid(router(x)), not softmax
  bool choice_bias = false;        // experts are chosen by p plus a learned bias
  double weight_scale = 1;         // factor on the weights
  std::int64_t shared_hidden = 0;  // F of the shared expert, times sigmoid(gate x); 0 = none
  Activation activation = Activation::silu;  // f
  bool bias = false;                         // router, gate, up and down have biases
  // F of a dense MLP beside the experts; 0 = none. Then dense MLP, router and experts read norms of
  // their own of the stream, weights are multiplied by factors of the experts, and the layer adds
  // norm(norm(dense MLP) + norm(experts)).
  std::int64_t dense_hidden = 0;

  bool operator==(const ExpertsMlpConfig&) const = default;
};

struct LayerConfig {
  std::variant<AttentionConfig, DeltaNetConfig, ShortConvConfig> mixer;
  std::variant<DenseMlpConfig, ExpertsMlpConfig> mlp;

  // Returns nullptr if the layer has another kind of mixer.
  const AttentionConfig* attention() const { return std::get_if<AttentionConfig>(&mixer); }
  AttentionConfig* attention() { return std::get_if<AttentionConfig>(&mixer); }
  const DeltaNetConfig* delta_net() const { return std::get_if<DeltaNetConfig>(&mixer); }
  const ShortConvConfig* short_conv() const { return std::get_if<ShortConvConfig>(&mixer); }
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

// Logits become cap * tanh(scale * logit / cap), which limits their magnitude to cap.
struct LogitCap {
  double scale = 1;
  double cap = 0;  // 0: no cap

  bool operator==(const LogitCap&) const = default;
};

// The configuration of a decoder as plain named fields, which a .leq file stores by name. The
// runtime depends on these fields alone, never on the name of a model family.
struct ModelConfig {
  std::string family;               // "llama", only for display
  std::vector<LayerConfig> layers;  // [L]
  std::int64_t width = 0;           // W, hidden_size
  std::int64_t heads = 0;           // H, the same in every attention layer
  std::int64_t kv_heads = 0;        // H_kv
  std::int64_t head_dim = 0;        // d
  std::int64_t vocab = 0;           // V
  std::int64_t context = 0;         // positions that the model was made for
  NormKind norm = NormKind::rms;    // kind of all norms
  float norm_eps = 1e-5f;
  float post_norm_eps = 0;    // eps of the norms of sublayer outputs; 0: no such norms
  bool layer_scales = false;  // each layer's output is multiplied by a number of its own
  // P: each layer also gets P numbers of the token, which it adds after its MLP (decoder.cpp).
  // 0: none.
  std::int64_t layer_input = 0;
  bool learned_positions = false;  // a table of positions is added to the embeddings
  double embedding_scale = 1;      // factor on token embeddings
  bool tied = false;               // the head uses the token embedding's weight
  LogitCap logit_cap;
  // A pooled embedding is multiplied by a matrix [W][W] of the file.
  bool embedding_projection = false;
  // The multi-token prediction head, which is one more layer; mtp_model returns it as a model.
  std::optional<LayerConfig> mtp = {};
  // Whether this model is such a head. Its residual stream starts as fc_embedding(norm(embedding of
  // token p)) + fc_hidden(norm(h of token p - 1)), where h is the large model's hidden state after
  // its final norm. It predicts token p + 1.
  bool reads_hidden = false;

  std::int64_t layer_count() const { return std::ssize(layers); }
  const LayerConfig& layer(std::int64_t index) const {
    return layers[static_cast<std::size_t>(index)];
  }
  // Positions that a query of the layer sees; 0: all, or the layer has no attention.
  std::int32_t window(std::int64_t index) const {
    const AttentionConfig* attention = layer(index).attention();
    return attention != nullptr ? attention->window : 0;
  }
  // Heads of a layer with attention.
  KvHeads kv_heads_of(const AttentionConfig& attention) const;
  std::vector<std::int64_t> attention_layers() const;
  // Layers with keys and values of their own; the i-th of them is layer i of the KV cache.
  std::vector<std::int64_t> cache_layers() const;
  // The different rotary positions of all layers and of the MTP head, in order of first use.
  std::vector<RopeConfig> ropes() const;
  std::int64_t rope_dims(const RopeConfig& rope) const;  // channels of a head that it rotates
  // The configuration of all Gated DeltaNet layers, which are alike; nullptr if there are none.
  const DeltaNetConfig* delta_net() const;
  // Layers without attention, each of which has a part of a sequence's fixed state, in this order.
  std::vector<std::int64_t> state_layers() const;
  // The temperature of all layers that have one; it is the same in all of them.
  QueryTemperature temperature() const;
  bool has_experts() const;  // whether any layer has experts
  // Whether attention sees later positions, so that the model makes embeddings but no text.
  bool both_ways() const;
  std::int64_t widest_mlp() const;  // the largest F of all layers
  bool operator==(const ModelConfig&) const = default;
};

// The multi-token prediction head shares embedding and output head with its model. Its other
// tensors have names with this prefix. `config` must have such a head.
inline constexpr std::string_view kMtp = "mtp.";
ModelConfig mtp_model(const ModelConfig& config);

// Convert between configuration and JSON. The reader checks every field (ranges, products, even
// head_dim) and throws Error naming `source`, field, value and range. Layers that differ at most in
// their windows are written once for all, as in version 1.0 ("layers": 22). Others are written one
// by one ("layers": [{...}, ...]), which requires a reader of version 1.1 (required_features).
Json config_to_json(const ModelConfig& config);
ModelConfig config_from_json(const Json& json, std::string_view source);
Json layer_to_json(const LayerConfig& layer);  // an entry of the list, without a rule of RoPE
// Features beyond version 1.0 that a reader of the file needs (LeqWriter::add_requirement).
std::vector<std::string> required_features(const ModelConfig& config);
// Returns another file format's name for the field that config_to_json writes as `name`.
using FieldSpeller = std::function<std::string(std::string_view name)>;
// Throws Error if a field is out of range or fields contradict each other. The error uses the names
// that the fields have in `source`.
void check_config(
    const ModelConfig& config, std::string_view source,
    const FieldSpeller& spell = [](std::string_view name) { return std::string(name); });

// Checks the number of layers before memory is allocated for them.
void check_layer_count(
    std::int64_t count, std::string_view source,
    const FieldSpeller& spell = [](std::string_view name) { return std::string(name); });

// One line for display: "llama: 22 layers, width 2048, 32 heads / 4 KV heads of 64, ..."
std::string describe(const ModelConfig& config);

}  // namespace leq
