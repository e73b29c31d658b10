#include "model/model_config.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "model/config_fields.h"
#include "model/layer_config_json.h"

namespace leq {
namespace {

constexpr std::array<std::string_view, 5> kScalingNames = {"none", "linear", "dynamic", "llama3",
                                                           "yarn"};

Json scaling_to_json(const RopeScaling& scaling) {
  Json json = {{"type", kScalingNames[static_cast<std::size_t>(scaling.kind)]},
               {"original_context", scaling.original_context},
               {"truncate", scaling.truncate}};
  for (const auto& field : kScalingFields) json[field.name] = scaling.*field.member;
  return json;
}

RopeScaling scaling_from_json(const Json& json, std::string_view source) {
  RopeScaling scaling;
  const auto name = json_get<std::string>(json, "type", source);
  bool known = false;
  for (std::size_t i = 0; i < kScalingNames.size(); ++i) {
    if (kScalingNames[i] != name) continue;
    scaling.kind = static_cast<RopeScalingKind>(i);
    known = true;
  }
  require(known, source, ": rope_scaling type \"", printable(name), "\" is not known");
  for (const auto& field : kScalingFields) {
    scaling.*field.member = json_get_or<double>(json, field.name, scaling.*field.member, source);
  }
  scaling.original_context = json_get_or<std::int64_t>(json, "original_context", 0, source);
  scaling.truncate = json_get_or<bool>(json, "truncate", true, source);
  return scaling;
}

Rotation rotation_from_json(const Json& json, std::string_view source) {
  const std::string place = std::string(source) + ": rotation";
  Rotation rotation;
  rotation.seed = json_get<std::uint64_t>(json, "seed", place);
  rotation.block = json_get<std::int64_t>(json, "block", place);
  // 0 means "no rotation" only in memory: a file without rotation does not contain this key.
  require(rotation.block != 0, place, ": block = 0: expected a power of two");
  return rotation;
}

LogitCap logit_cap_from_json(const Json& json, std::string_view source) {
  const auto found = json.find("logit_cap");
  if (found == json.end()) return {};
  const std::string place = std::string(source) + ": logit_cap";
  require(found->is_object(), place, ": expected an object");
  const LogitCap logits = {json_get<double>(*found, "scale", place),
                           json_get<double>(*found, "cap", place)};
  // 0 means "no cap" only in memory: a file without a cap does not contain this key.
  require(logits.cap != 0, place, ": cap = 0: expected above 0");
  return logits;
}

}  // namespace

std::string_view rope_scaling_name(RopeScalingKind kind) {
  return kScalingNames[static_cast<std::size_t>(kind)];
}

std::vector<std::int64_t> ModelConfig::attention_layers() const {
  std::vector<std::int64_t> found;
  for (std::int64_t layer = 0; layer < layer_count(); ++layer) {
    if (this->layer(layer).attention() != nullptr) found.push_back(layer);
  }
  return found;
}

bool ModelConfig::has_rope() const {
  return std::ranges::any_of(layers, [](const LayerConfig& layer) {
    return layer.attention() != nullptr && layer.attention()->rotary;
  });
}

std::int64_t ModelConfig::rope_dims() const {
  for (const LayerConfig& layer : layers) {
    const AttentionConfig* attention = layer.attention();
    if (attention == nullptr || !attention->rotary) continue;
    return attention->rotary_dims > 0 ? attention->rotary_dims : head_dim;
  }
  return head_dim;
}

const DeltaNetConfig* ModelConfig::delta_net() const {
  for (const LayerConfig& layer : layers) {
    if (layer.delta_net() != nullptr) return layer.delta_net();
  }
  return nullptr;
}

std::vector<std::int64_t> ModelConfig::delta_layers() const {
  std::vector<std::int64_t> found;
  for (std::int64_t layer = 0; layer < layer_count(); ++layer) {
    if (this->layer(layer).delta_net() != nullptr) found.push_back(layer);
  }
  return found;
}

ModelConfig mtp_model(const ModelConfig& config) {
  ensure(config.mtp.has_value(), "a model without a head of multi-token prediction");
  ModelConfig head = config;
  head.layers = {*config.mtp};
  head.mtp.reset();
  head.reads_hidden = true;
  head.rotation = {};
  return head;
}

bool ModelConfig::has_experts() const {
  return std::ranges::any_of(
      layers, [](const LayerConfig& layer) { return layer.experts_mlp() != nullptr; });
}

QueryTemperature ModelConfig::temperature() const {
  for (const LayerConfig& layer : layers) {
    const AttentionConfig* attention = layer.attention();
    if (attention != nullptr && attention->temperature.period != 0) return attention->temperature;
  }
  return {};
}

std::int64_t ModelConfig::widest_mlp() const {
  std::int64_t widest = 0;
  for (const LayerConfig& layer : layers) {
    if (const DenseMlpConfig* mlp = layer.dense_mlp()) widest = std::max(widest, mlp->hidden);
    if (const ExpertsMlpConfig* mlp = layer.experts_mlp()) {
      widest = std::max({widest, mlp->hidden, mlp->shared_hidden});
    }
  }
  return widest;
}

Json config_to_json(const ModelConfig& config) {
  Json json = {{"family", config.family},
               {"norm", config.norm == NormKind::rms ? "rms" : "layer"},
               {"norm_eps", config.norm_eps},
               {"rope_theta", config.rope_theta},
               {"rope_scaling", scaling_to_json(config.rope_scaling)},
               {"tied", config.tied}};
  for (const auto& field : kCounts) json[field.name] = config.*field.member;
  if (config.post_norm_eps > 0) json["post_norm_eps"] = config.post_norm_eps;
  if (config.logit_cap.cap > 0) {
    json["logit_cap"] = {{"scale", config.logit_cap.scale}, {"cap", config.logit_cap.cap}};
  }
  if (config.rotation.block > 0) {
    json["rotation"] = {{"seed", config.rotation.seed}, {"block", config.rotation.block}};
  }
  layers_to_json(config, json);
  if (config.mtp) json["mtp"] = layer_to_json(*config.mtp);
  return json;
}

std::vector<std::string> required_features(const ModelConfig& config) {
  std::vector<std::string> features;
  if (config.rotation.block > 0) features.emplace_back("rotation");
  if (!has_version_1_0_layers(config)) features.emplace_back("layers");
  const auto any = [&](auto has) { return std::ranges::any_of(config.layers, has); };
  const auto attends = [](auto has) {
    return [has](const LayerConfig& layer) {
      return layer.attention() != nullptr && has(*layer.attention());
    };
  };
  if (any(attends([](const AttentionConfig& one) { return one.rotary_dims > 0; }))) {
    features.emplace_back("rotary_dims");
  }
  if (any(attends([](const AttentionConfig& one) { return one.output_gate; }))) {
    features.emplace_back("output_gate");
  }
  if (config.delta_net() != nullptr) features.emplace_back("delta_net");
  if (config.has_experts()) features.emplace_back("experts");
  if (config.temperature().period != 0) features.emplace_back("temperature");
  if (config.post_norm_eps > 0) features.emplace_back("post_norm");
  if (config.logit_cap.cap > 0) features.emplace_back("logit_cap");
  return features;
}

ModelConfig config_from_json(const Json& json, std::string_view source) {
  ModelConfig config;
  config.family = json_get<std::string>(json, "family", source);
  for (const auto& field : kCounts) {
    config.*field.member = json_get<std::int64_t>(json, field.name, source);
  }
  config.tied = json_get<bool>(json, "tied", source);
  const auto norm = json_get<std::string>(json, "norm", source);
  require(norm == "rms" || norm == "layer", source, ": norm \"", printable(norm),
          "\": expected rms or layer");
  config.norm = norm == "rms" ? NormKind::rms : NormKind::layer;
  config.norm_eps = json_get<float>(json, "norm_eps", source);
  config.rope_theta = json_get<double>(json, "rope_theta", source);
  config.post_norm_eps = json_get_or<float>(json, "post_norm_eps", 0, source);
  config.logit_cap = logit_cap_from_json(json, source);
  const auto scaling = json.find("rope_scaling");
  if (scaling != json.end()) config.rope_scaling = scaling_from_json(*scaling, source);
  layers_from_json(json, source, config);
  if (const Json* rotation = json.find_given("rotation")) {
    config.rotation = rotation_from_json(*rotation, source);
  }
  if (const Json* mtp = json.find_given("mtp")) {
    config.mtp = layer_from_json(*mtp, std::string(source) + ": mtp");
  }
  check_config(config, source);
  return config;
}

namespace {

// For example ", 128 experts of 768, 8 a token, on 48 layers"; empty if there are no experts.
std::string describe_experts(const ModelConfig& config) {
  std::int64_t count = 0;
  const ExpertsMlpConfig* first = nullptr;
  for (const LayerConfig& layer : config.layers) {
    if (layer.experts_mlp() == nullptr) continue;
    ++count;
    if (first == nullptr) first = layer.experts_mlp();
  }
  if (first == nullptr) return "";
  std::string text = ", " + std::to_string(first->experts) + " experts of " +
                     std::to_string(first->hidden) + ", " + std::to_string(first->active) +
                     " a token";
  if (first->shared_hidden > 0)
    text += " and a shared one of " + std::to_string(first->shared_hidden);
  return text + ", on " + std::to_string(count) + " layers";
}

}  // namespace

std::string describe(const ModelConfig& config) {
  std::string text = printable(config.family) + ": " + std::to_string(config.layer_count()) +
                     " layers, width " + std::to_string(config.width) + ", " +
                     std::to_string(config.heads) + " heads / " + std::to_string(config.kv_heads) +
                     " KV heads of " + std::to_string(config.head_dim) + ", MLP " +
                     std::to_string(config.widest_mlp()) + ", vocabulary " +
                     std::to_string(config.vocab) + ", context " + std::to_string(config.context);
  text += describe_experts(config);
  if (config.rope_scaling.kind != RopeScalingKind::none) {
    text += ", rope " + std::string(rope_scaling_name(config.rope_scaling.kind));
  }
  int windowed = 0;
  std::int32_t window = 0;
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    windowed += config.window(layer) > 0 ? 1 : 0;
    window = std::max(window, config.window(layer));
  }
  if (windowed > 0) {
    text += ", window " + std::to_string(window) + " on " + std::to_string(windowed) + " layers";
  }
  if (const DeltaNetConfig* delta = config.delta_net()) {
    text += ", Gated DeltaNet on " + std::to_string(config.delta_layers().size()) + " layers (" +
            std::to_string(delta->value_heads) + " value heads of " +
            std::to_string(delta->value_dim) + " / " + std::to_string(delta->key_heads) +
            " key heads of " + std::to_string(delta->key_dim) + ")";
  }
  if (config.has_rope() && config.rope_dims() != config.head_dim) {
    text += ", RoPE on " + std::to_string(config.rope_dims()) + " of " +
            std::to_string(config.head_dim);
  }
  if (config.logit_cap.cap > 0) {
    text += ", logits below " + std::to_string(static_cast<int>(config.logit_cap.cap));
  }
  if (const QueryTemperature temperature = config.temperature(); temperature.period > 0) {
    text += ", queries sharper every " + std::to_string(temperature.period) + " positions";
  }
  if (config.rotation.block > 0) {
    text += ", rotated in blocks of " + std::to_string(config.rotation.block);
  }
  if (config.mtp) text += ", a head of multi-token prediction";
  return text + (config.tied ? ", tied head" : "");
}

}  // namespace leq
