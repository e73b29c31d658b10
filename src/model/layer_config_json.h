// The layers of a configuration as JSON of a .leq file (docs/leq-format.md): one entry for all
// layers, as in version 1.0, or a list. Names of layer kinds and of their fields are defined here.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "model/model_config.h"

namespace leq {

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
