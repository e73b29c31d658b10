// The layers of a configuration as a .leq file has them (docs/leq-format.md): once for all, as
// version 1.0 can say it, or one by one. A kind of layer names itself and its fields here.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "model/model_config.h"

namespace leq {

inline constexpr std::int64_t kLargestWindow = 1 << 30;

// Whether version 1.0 can say what layers and positions there are.
bool has_version_1_0_layers(const ModelConfig& config);
// One layer as files list them.
Json layer_to_json(const LayerConfig& layer);
LayerConfig layer_from_json(const Json& json, std::string_view source);

void layers_to_json(const ModelConfig& config, Json& json);
// Sets layers and learned_positions. Throws Error naming `source`, layer, field and value.
void layers_from_json(const Json& json, std::string_view source, ModelConfig& config);

}  // namespace leq
