// Integer fields of a ModelConfig with their names in a .leq file.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "model/model_config.h"

namespace leq {

// An integer field: its name in the file, and the largest value that is accepted.
struct CountField {
  const char* name;
  std::int64_t ModelConfig::*member;
  std::int64_t largest;
};
inline constexpr std::array<CountField, 6> kCounts = {
    {{"width", &ModelConfig::width, 1 << 20},
     {"heads", &ModelConfig::heads, 4096},
     {"kv_heads", &ModelConfig::kv_heads, 4096},
     {"head_dim", &ModelConfig::head_dim, 1024},
     {"vocab", &ModelConfig::vocab, 1 << 24},
     {"context", &ModelConfig::context, 1 << 24}}};

struct ScalingField {
  const char* name;
  double RopeScaling::*member;
};
inline constexpr std::array<ScalingField, 8> kScalingFields = {
    {{"factor", &RopeScaling::factor},
     {"low_freq_factor", &RopeScaling::low_freq_factor},
     {"high_freq_factor", &RopeScaling::high_freq_factor},
     {"attention_factor", &RopeScaling::attention_factor},
     {"beta_fast", &RopeScaling::beta_fast},
     {"beta_slow", &RopeScaling::beta_slow},
     {"mscale", &RopeScaling::mscale},
     {"mscale_all_dim", &RopeScaling::mscale_all_dim}}};

// The layers of a configuration as JSON of a .leq file (docs/leq-format.md): one entry for all
// layers, as in version 1.0, or a list. Names of layer kinds and of their fields are defined here.

inline constexpr std::int64_t kLargestWindow = 1 << 30;

// Whether version 1.0 can express the layers and position embeddings.
bool has_version_1_0_layers(const ModelConfig& config);
// One layer as an entry of the file's list.
Json layer_to_json(const LayerConfig& layer);
LayerConfig layer_from_json(const Json& json, std::string_view source);

void layers_to_json(const ModelConfig& config, Json& json);
// Sets layers and learned_positions. Throws Error naming `source`, the layer, field and value.
void layers_from_json(const Json& json, std::string_view source, ModelConfig& config);

}  // namespace leq
