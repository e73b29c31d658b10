#include "model/layer_config_json.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <string>

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

// Version 1.0: the fields of one layer stand for all, beside a list of windows.
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

constexpr std::string_view kAttentionKind = "attention", kDenseKind = "dense",
                           kExpertsKind = "experts";

Json to_json(const AttentionConfig& attention) {
  Json json = {{"kind", kAttentionKind}, {"window", attention.window}};
  for (const auto& field : kAttentionFlags) json[field.name] = attention.*field.member;
  return json;
}

Json to_json(const DenseMlpConfig& mlp) {
  return {{"kind", kDenseKind}, {"hidden", mlp.hidden}, {"gated", mlp.gated}, {"bias", mlp.bias}};
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

DenseMlpConfig dense_from_json(const Json& mlp, std::string_view source) {
  return {json_get<std::int64_t>(mlp, "hidden", source), json_get<bool>(mlp, "gated", source),
          json_get<bool>(mlp, "bias", source)};
}

ExpertsMlpConfig experts_from_json(const Json& mlp, std::string_view source) {
  ExpertsMlpConfig experts;
  experts.normalized = json_get<bool>(mlp, "normalized", source);
  for (const auto& field : kExpertCounts) {
    experts.*field.member = json_get<std::int64_t>(mlp, field.name, source);
  }
  return experts;
}

const Json& section_of(const Json& layer, const char* name,
                       std::initializer_list<std::string_view> kinds, std::string_view source) {
  const auto found = layer.find(name);
  require(found != layer.end() && found->is_object(), source, ": ", name, ": expected an object");
  const auto known = json_get<std::string>(*found, "kind", source);
  const std::vector<std::string> names(kinds.begin(), kinds.end());
  require(std::ranges::find(names, known) != names.end(), source, ": ", name, " of kind \"",
          printable(known), "\": expected ", join(names, " or "));
  return *found;
}

LayerConfig layer_from_json(const Json& json, std::string_view source) {
  require(json.is_object(), source, ": expected an object");
  AttentionConfig attention;
  const Json& mixer = section_of(json, "mixer", {kAttentionKind}, source);
  const auto window = mixer.find("window");
  require(window != mixer.end(), source, ": mixer: window is missing");
  attention.window = window_from_json(*window, source);
  for (const auto& field : kAttentionFlags) {
    attention.*field.member = json_get<bool>(mixer, field.name, source);
  }
  const Json& mlp = section_of(json, "mlp", {kDenseKind, kExpertsKind}, source);
  if (json_get<std::string>(mlp, "kind", source) == kExpertsKind) {
    return {attention, experts_from_json(mlp, source)};
  }
  return {attention, dense_from_json(mlp, source)};
}

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

// The layers as version 1.0 can have them, which has learned positions where it has no RoPE.
std::optional<UniformLayers> version_1_0_layers(const ModelConfig& config) {
  auto uniform = uniform_layers(config.layers);
  if (uniform && uniform->attention.rotary == config.learned_positions) uniform.reset();
  return uniform;
}

}  // namespace

bool has_version_1_0_layers(const ModelConfig& config) {
  return version_1_0_layers(config).has_value();
}

void layers_to_json(const ModelConfig& config, Json& json) {
  if (const auto uniform = version_1_0_layers(config)) return add_uniform_layers(*uniform, json);
  json["learned_positions"] = config.learned_positions;
  json["layers"] = Json::array();
  for (const LayerConfig& layer : config.layers) {
    const auto part = [](const auto& kind) { return to_json(kind); };
    json["layers"].push_back(
        {{"mixer", std::visit(part, layer.mixer)}, {"mlp", std::visit(part, layer.mlp)}});
  }
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
