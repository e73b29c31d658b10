#include "model/config_json.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

template <class Config>
struct FlagField {
  const char* name;
  bool Config::*member;
};
struct ExpertCount {
  const char* name;
  std::int64_t ExpertsMlpConfig::*member;
};
constexpr std::array<FlagField<AttentionConfig>, 4> kAttentionFlags = {
    {{"rotary", &AttentionConfig::rotary},
     {"qkv_bias", &AttentionConfig::qkv_bias},
     {"output_bias", &AttentionConfig::output_bias},
     {"qk_norm", &AttentionConfig::qk_norm}}};

std::int32_t window_from_json(const Json& json, std::string_view source) {
  require(json.is_number_integer(), source, ": windows: expected whole numbers");
  const auto value = json.get<std::int64_t>();
  require(value >= 0 && value <= kLargestWindow, source, ": window ", value, " is out of range");
  return static_cast<std::int32_t>(value);
}

// Version 1.0: writes the fields of one layer for all layers, and a list of windows.
void add_uniform_layers(const UniformLayers& layers, Json& json) {
  json["layers"] = layers.count;
  json["windows"] = layers.windows;
  for (const auto& field : kAttentionFlags) json[field.name] = layers.attention.*field.member;
  json["hidden"] = layers.mlp.hidden;
  json["gated"] = layers.mlp.gated;
  json["mlp_bias"] = layers.mlp.bias;
}

UniformLayers uniform_from_json(const Json& json, std::string_view source) {
  UniformLayers layers;
  layers.count = json_get<std::int64_t>(json, "layers", source);
  layers.mlp.hidden = json_get<std::int64_t>(json, "hidden", source);
  for (const auto& field : kAttentionFlags) {
    layers.attention.*field.member = json_get<bool>(json, field.name, source);
  }
  layers.mlp.gated = json_get<bool>(json, "gated", source);
  layers.mlp.bias = json_get<bool>(json, "mlp_bias", source);
  check_layer_count(layers.count, source);
  const auto windows = json.find("windows");
  if (windows == json.end()) return layers;
  require(windows->is_array(), source, ": windows: expected a list");
  for (const auto& window : *windows) layers.windows.push_back(window_from_json(window, source));
  require(layers.windows.empty() || std::ssize(layers.windows) == layers.count, source,
          ": windows for ", layers.windows.size(), " layers, the model has ", layers.count);
  return layers;
}

constexpr std::string_view kAttentionKind = "attention", kDeltaKind = "delta_net",
                           kDenseKind = "dense", kExpertsKind = "experts";

Json to_json(const AttentionConfig& attention) {
  Json json = {{"kind", kAttentionKind}, {"window", attention.window}};
  for (const auto& field : kAttentionFlags) json[field.name] = attention.*field.member;
  if (attention.rotary_dims > 0) json["rotary_dims"] = attention.rotary_dims;
  if (attention.output_gate) json["output_gate"] = true;
  if (attention.temperature.period != 0) {
    json["temperature"] = {{"beta", attention.temperature.beta},
                           {"period", attention.temperature.period}};
  }
  return json;
}

QueryTemperature temperature_from_json(const Json& mixer, std::string_view source) {
  const auto found = mixer.find("temperature");
  if (found == mixer.end()) return {};
  const std::string place = std::string(source) + ": temperature";
  require(found->is_object(), place, ": expected an object");
  const QueryTemperature temperature = {json_get<double>(*found, "beta", place),
                                        json_get<std::int64_t>(*found, "period", place)};
  // 0 means "none" only in memory: a file without temperature does not contain this key.
  require(temperature.period != 0, place, ": period = 0: expected at least 1");
  return temperature;
}

AttentionConfig attention_from_json(const Json& mixer, std::string_view source) {
  AttentionConfig attention;
  const auto window = mixer.find("window");
  require(window != mixer.end(), source, ": mixer: window is missing");
  attention.window = window_from_json(*window, source);
  for (const auto& field : kAttentionFlags) {
    attention.*field.member = json_get<bool>(mixer, field.name, source);
  }
  attention.rotary_dims = json_get_or<std::int32_t>(mixer, "rotary_dims", 0, source);
  attention.output_gate = json_get_or<bool>(mixer, "output_gate", false, source);
  attention.temperature = temperature_from_json(mixer, source);
  return attention;
}

struct DeltaField {
  const char* name;
  std::int64_t DeltaNetConfig::*member;
};
constexpr std::array<DeltaField, 5> kDeltaFields = {{{"key_heads", &DeltaNetConfig::key_heads},
                                                     {"value_heads", &DeltaNetConfig::value_heads},
                                                     {"key_dim", &DeltaNetConfig::key_dim},
                                                     {"value_dim", &DeltaNetConfig::value_dim},
                                                     {"conv_taps", &DeltaNetConfig::conv_taps}}};

Json to_json(const DeltaNetConfig& delta) {
  Json json = {{"kind", kDeltaKind}};
  for (const DeltaField& field : kDeltaFields) json[field.name] = delta.*field.member;
  return json;
}

DeltaNetConfig delta_from_json(const Json& mixer, std::string_view source) {
  DeltaNetConfig delta;
  for (const DeltaField& field : kDeltaFields) {
    delta.*field.member = json_get<std::int64_t>(mixer, field.name, source);
  }
  return delta;
}

Json to_json(const DenseMlpConfig& mlp) {
  return {{"kind", kDenseKind}, {"hidden", mlp.hidden}, {"gated", mlp.gated}, {"bias", mlp.bias}};
}

DenseMlpConfig dense_from_json(const Json& mlp, std::string_view source) {
  return {json_get<std::int64_t>(mlp, "hidden", source), json_get<bool>(mlp, "gated", source),
          json_get<bool>(mlp, "bias", source)};
}

constexpr std::array<ExpertCount, 4> kExpertCounts = {
    {{"experts", &ExpertsMlpConfig::experts},
     {"active", &ExpertsMlpConfig::active},
     {"hidden", &ExpertsMlpConfig::hidden},
     {"shared_hidden", &ExpertsMlpConfig::shared_hidden}}};

Json to_json(const ExpertsMlpConfig& mlp) {
  Json json = {{"kind", kExpertsKind}, {"normalized", mlp.normalized}};
  for (const auto& field : kExpertCounts) json[field.name] = mlp.*field.member;
  return json;
}

ExpertsMlpConfig experts_from_json(const Json& mlp, std::string_view source) {
  ExpertsMlpConfig experts;
  experts.normalized = json_get<bool>(mlp, "normalized", source);
  for (const auto& field : kExpertCounts) {
    experts.*field.member = json_get<std::int64_t>(mlp, field.name, source);
  }
  return experts;
}

// Returns a section of the layer's JSON and its kind, which must be one of `kinds`.
std::pair<const Json&, std::string> section_of(const Json& layer, const char* name,
                                               std::span<const std::string_view> kinds,
                                               std::string_view source) {
  const auto found = layer.find(name);
  require(found != layer.end() && found->is_object(), source, ": ", name, ": expected an object");
  auto kind = json_get<std::string>(*found, "kind", source);
  require(std::ranges::find(kinds, kind) != kinds.end(), source, ": ", name, " of kind \"",
          printable(kind), "\": expected ",
          join(std::vector<std::string>(kinds.begin(), kinds.end()), " or "));
  return {*found, std::move(kind)};
}

}  // namespace

LayerConfig layer_from_json(const Json& json, std::string_view source) {
  require(json.is_object(), source, ": expected an object");
  constexpr std::array kMixers = {kAttentionKind, kDeltaKind};
  constexpr std::array kMlps = {kDenseKind, kExpertsKind};
  LayerConfig layer;
  const auto [mixer, kind] = section_of(json, "mixer", kMixers, source);
  if (kind == kDeltaKind) {
    layer.mixer = delta_from_json(mixer, source);
  } else {
    layer.mixer = attention_from_json(mixer, source);
  }
  const auto [mlp, mlp_kind] = section_of(json, "mlp", kMlps, source);
  if (mlp_kind == kExpertsKind) {
    layer.mlp = experts_from_json(mlp, source);
  } else {
    layer.mlp = dense_from_json(mlp, source);
  }
  return layer;
}

namespace {

std::vector<LayerConfig> listed_layers(const Json& json, std::string_view source) {
  check_layer_count(static_cast<std::int64_t>(json.size()), source);
  std::vector<LayerConfig> layers;
  for (const Json& layer : json) {
    const std::string place =
        std::string(source) + ": layers[" + std::to_string(layers.size()) + "]";
    layers.push_back(layer_from_json(layer, place));
  }
  return layers;
}

// The layers if version 1.0 can express them, otherwise nullopt. Version 1.0 assumes learned
// positions in models without RoPE, and has no query temperature.
std::optional<UniformLayers> version_1_0_layers(const ModelConfig& config) {
  auto uniform = uniform_layers(config.layers);
  if (!uniform) return uniform;
  const AttentionConfig& attention = uniform->attention;
  const bool newer =
      attention.rotary_dims > 0 || attention.output_gate || attention.temperature.period != 0;
  if (newer || attention.rotary == config.learned_positions) uniform.reset();
  return uniform;
}

}  // namespace

bool has_version_1_0_layers(const ModelConfig& config) {
  return version_1_0_layers(config).has_value();
}

Json layer_to_json(const LayerConfig& layer) {
  const auto part = [](const auto& kind) { return to_json(kind); };
  return {{"mixer", std::visit(part, layer.mixer)}, {"mlp", std::visit(part, layer.mlp)}};
}

void layers_to_json(const ModelConfig& config, Json& json) {
  if (const auto uniform = version_1_0_layers(config)) return add_uniform_layers(*uniform, json);
  json["learned_positions"] = config.learned_positions;
  json["layers"] = Json::array();
  for (const LayerConfig& layer : config.layers) json["layers"].push_back(layer_to_json(layer));
}

void layers_from_json(const Json& json, std::string_view source, ModelConfig& config) {
  const auto layers = json.find("layers");
  if (layers != json.end() && layers->is_array()) {
    config.layers = listed_layers(*layers, source);
    config.learned_positions = json_get<bool>(json, "learned_positions", source);
    return;
  }
  const UniformLayers uniform = uniform_from_json(json, source);
  config.layers = uniform.layers();
  config.learned_positions = !uniform.attention.rotary;
}

}  // namespace leq
