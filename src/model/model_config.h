// The configuration of a decoder as plain named fields, which a .leq file stores by name; the
// runtime has no other notion of a model's family.
#pragma once

#include <cstdint>
#include <functional>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/json.h"
#include "model/layer_config.h"

namespace leq {

enum class RopeScalingKind : std::uint8_t { none, linear, dynamic, llama3, yarn };

// Parameters of Hugging Face's rope_scaling / rope_parameters, by their names there.
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;       // llama3
  double high_freq_factor = 4.0;      // llama3
  std::int64_t original_context = 0;  // original_max_position_embeddings; 0 = not given
  double attention_factor = 0.0;      // yarn; 0 = not given
  double beta_fast = 32.0;            // yarn
  double beta_slow = 1.0;             // yarn
  double mscale = 0.0;                // yarn; 0 = not given
  double mscale_all_dim = 0.0;        // yarn; 0 = not given
  bool truncate = true;               // yarn: whole correction dimensions

  bool operator==(const RopeScaling&) const = default;
};

// The residual stream is kept rotated between the embedding and the final norm (model/rotation.h).
struct Rotation {
  std::uint64_t seed = 0;  // of the random signs
  std::int64_t block = 0;  // columns that one Hadamard matrix mixes; 0 = no rotation

  bool operator==(const Rotation&) const = default;
};

// logits become cap * tanh(scale * logit / cap), which keeps them within cap of 0.
struct LogitCap {
  double scale = 1;
  double cap = 0;  // 0: logits stay as they are

  bool operator==(const LogitCap&) const = default;
};

struct ModelConfig {
  std::string family;               // "llama", for people
  std::vector<LayerConfig> layers;  // [L]
  std::int64_t width = 0;           // W, hidden_size
  std::int64_t heads = 0;           // H, of every attention layer
  std::int64_t kv_heads = 0;        // H_kv
  std::int64_t head_dim = 0;        // d
  std::int64_t vocab = 0;           // V
  std::int64_t context = 0;         // positions that the model was made for
  NormKind norm = NormKind::rms;    // of all norms; block_norm() tells those of the layers
  float norm_eps = 1e-5f;
  float post_norm_eps = 0;  // of norms of what a sublayer adds to the stream; 0: there are none
  bool learned_positions = false;  // a table of positions is added to the embeddings
  double rope_theta = 10000.0;     // of the layers with RoPE
  RopeScaling rope_scaling;
  bool tied = false;  // the head is the token embedding
  LogitCap logit_cap;
  Rotation rotation;
  // A head of multi-token prediction: one layer more, as a model of its own (mtp_model).
  std::optional<LayerConfig> mtp = {};
  // Of such a model. Its first stream is
  //   fc_embedding(norm(embedding of token p)) + fc_hidden(norm(h of token p - 1)),
  // h the large model's hidden state after its final norm; it predicts token p + 1.
  bool reads_hidden = false;

  std::int64_t layer_count() const { return std::ssize(layers); }
  const LayerConfig& layer(std::int64_t index) const {
    return layers[static_cast<std::size_t>(index)];
  }
  // Positions that a query of the layer sees, 0 = all; of a layer without attention 0.
  std::int32_t window(std::int64_t index) const {
    const AttentionConfig* attention = layer(index).attention();
    return attention != nullptr ? attention->window : 0;
  }
  // Those with keys and values: the i-th of them is layer i of the cache.
  std::vector<std::int64_t> attention_layers() const;
  bool has_rope() const;  // in some layer
  // Numbers of a head that RoPE turns, the same in all layers that have it.
  std::int64_t rope_dims() const;
  // Of the layers of Gated DeltaNet, which are alike; nullptr where there are none.
  const DeltaNetConfig* delta_net() const;
  std::vector<std::int64_t> delta_layers() const;  // the i-th of them is part i of a fixed state
  // Of the layers that have one: the same in all of them.
  QueryTemperature temperature() const;
  bool has_experts() const;         // in some layer
  std::int64_t widest_mlp() const;  // the largest F of all layers
  // A rotation folds means and gains into weights: the norms of a rotated stream's layers are plain
  // RMS norms, whatever the final norm is.
  NormKind block_norm() const { return rotation.block > 0 ? NormKind::rms : norm; }
  bool operator==(const ModelConfig&) const = default;
};

// The head of multi-token prediction, which shares embedding and head with its model; the other
// tensors have their names after "mtp.". `config` must have one.
inline constexpr std::string_view kMtp = "mtp.";
ModelConfig mtp_model(const ModelConfig& config);

// Both ways by name. The reader checks every field (ranges, products, even head_dim) and throws
// Error naming `source`, field, value and range. Layers that are alike but for their windows are
// written as version 1.0 has them, once for all ("layers": 22); others one by one ("layers":
// [{...}, ...]), which takes a reader of version 1.1 (required_features).
Json config_to_json(const ModelConfig& config);
ModelConfig config_from_json(const Json& json, std::string_view source);
// What a file requires of its reader (LeqWriter::add_requirement) beyond version 1.0.
std::vector<std::string> required_features(const ModelConfig& config);
// How another file calls the field that config_to_json writes under `name`.
using FieldSpeller = std::function<std::string(std::string_view name)>;
// Throws Error where a field is out of range or fields contradict each other, with the names that
// fields have in `source`.
void check_config(
    const ModelConfig& config, std::string_view source,
    const FieldSpeller& spell = [](std::string_view name) { return std::string(name); });

// Before memory is taken for so many layers.
void check_layer_count(
    std::int64_t count, std::string_view source,
    const FieldSpeller& spell = [](std::string_view name) { return std::string(name); });

std::string_view rope_scaling_name(RopeScalingKind kind);
// One line for people: "llama: 22 layers, width 2048, 32 heads / 4 KV heads of 64, ..."
std::string describe(const ModelConfig& config);

}  // namespace leq
