// layer_types of families whose older config.json has a rule instead of the list.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "model/model_config.h"

namespace leq {

// Checks num_hidden_layers, and sets layer_types where it is absent: is_full(layer, layers) says
// which layers attend to all positions, `other` what the others are called.
template <class IsFull>
void list_layer_types(Json& json, std::string_view source, const IsFull& is_full,
                      std::string_view other = "sliding_attention") {
  const auto layers = json_get<std::int64_t>(json, "num_hidden_layers", source);
  check_layer_count(layers, source, [](std::string_view) { return "num_hidden_layers"; });
  if (json.find_given("layer_types") != nullptr) return;
  Json types = Json::array();
  for (std::int64_t i = 0; i < layers; ++i) {
    types.push_back(is_full(i, layers) ? "full_attention" : other);
  }
  json["layer_types"] = std::move(types);
}

}  // namespace leq
