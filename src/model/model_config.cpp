#include "model/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "model/config_json.h"

namespace leq {

std::vector<LayerConfig> UniformLayers::layers() const {
  std::vector<LayerConfig> all(static_cast<std::size_t>(count), LayerConfig{attention, mlp});
  for (std::size_t i = 0; i < windows.size() && i < all.size(); ++i) {
    all[i].attention()->window = windows[i];
  }
  return all;
}

std::optional<UniformLayers> uniform_layers(std::span<const LayerConfig> layers) {
  UniformLayers uniform;
  uniform.count = std::ssize(layers);
  for (const LayerConfig& layer : layers) {
    if (layer.attention() == nullptr || layer.dense_mlp() == nullptr) return std::nullopt;
    uniform.windows.push_back(layer.attention()->window);
  }
  if (layers.empty()) return uniform;
  uniform.attention = *layers[0].attention();
  uniform.attention.window = 0;
  uniform.mlp = *layers[0].dense_mlp();
  if (std::ranges::all_of(uniform.windows, [](std::int32_t w) { return w == 0; })) {
    uniform.windows.clear();
  }
  return std::ranges::equal(uniform.layers(), layers) ? std::optional(uniform) : std::nullopt;
}

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
  layers_to_json(config, json);
  if (config.mtp) json["mtp"] = layer_to_json(*config.mtp);
  return json;
}

std::vector<std::string> required_features(const ModelConfig& config) {
  std::vector<std::string> features;
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
  require(json.find_given("rotation") == nullptr, source,
          ": rotation: expected none, because rotated (Hadamard) weights are not supported since "
          "0.2; quantize the checkpoint again, unrotated");
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
  if (config.mtp) text += ", a head of multi-token prediction";
  return text + (config.tied ? ", tied head" : "");
}

// Checks that every ModelConfig must pass, whatever file it was read from.

namespace {

constexpr std::int64_t kMostLayers = 4096;
constexpr std::int64_t kWidestMlp = 1 << 22;
constexpr std::int64_t kMostExperts = 4096;

void check_scaling(const RopeScaling& scaling, std::int64_t head_dim, std::string_view source) {
  if (scaling.kind == RopeScalingKind::none) return;
  for (const auto& field : kScalingFields) {
    const double value = scaling.*field.member;
    require(std::isfinite(value) && value >= 0 && value <= 1e6, source, ": rope_scaling ",
            field.name, " = ", value, ": expected 0 to 1e6");
  }
  require(scaling.factor >= 1e-3, source, ": rope_scaling factor = ", scaling.factor,
          ": expected at least 0.001");
  require(scaling.original_context >= 0 && scaling.original_context <= 1 << 24, source,
          ": rope_scaling original context = ", scaling.original_context);
  if (scaling.kind == RopeScalingKind::llama3) {
    require(scaling.original_context > 0, source,
            ": rope_scaling llama3 needs original_max_position_embeddings");
    require(scaling.high_freq_factor > scaling.low_freq_factor && scaling.low_freq_factor > 0,
            source, ": rope_scaling llama3 needs 0 < low_freq_factor < high_freq_factor, found ",
            scaling.low_freq_factor, " and ", scaling.high_freq_factor);
  }
  require(scaling.kind != RopeScalingKind::dynamic || head_dim > 2, source,
          ": rope_scaling dynamic needs a head_dim above 2");
}

void check_temperature(const ModelConfig& config, std::int64_t layer, std::string_view place) {
  const AttentionConfig* attention = config.layer(layer).attention();
  if (attention == nullptr || attention->temperature.period == 0) return;
  const auto& [beta, period] = attention->temperature;
  require(std::isfinite(beta) && beta > 0 && beta <= 1e3, place, ": temperature beta = ", beta,
          ": expected above 0, at most 1000");
  require(period >= 1 && period <= 1 << 24, place, ": temperature period = ", period,
          ": expected 1 to ", 1 << 24);
  require(attention->temperature == config.temperature(), place,
          ": layers with two temperatures of queries are not supported");
}

constexpr std::int64_t kMostTaps = 16;
constexpr std::int64_t kWidestHead = 1024;

void check_attention(const ModelConfig& config, const AttentionConfig& attention,
                     std::string_view place) {
  const std::int64_t dims = attention.rotary_dims;
  require(dims >= 0 && dims <= config.head_dim && dims % 2 == 0, place, ": rotary_dims = ", dims,
          ": expected an even number up to head_dim ", config.head_dim);
  const auto first = config.attention_layers().front();
  const AttentionConfig& other = *config.layer(first).attention();
  require(!attention.rotary || config.rope_dims() == (dims > 0 ? dims : config.head_dim), place,
          ": rotary_dims = ", dims, ", other layers turn ", config.rope_dims(),
          ": expected all alike");
  require(attention.output_gate == other.output_gate, place, ": output_gate unlike that of layers[",
          first, "]: expected all alike");
}

void check_delta_net(const ModelConfig& config, const DeltaNetConfig& delta,
                     std::string_view place) {
  const auto check = [&](const char* name, std::int64_t value, std::int64_t largest) {
    require(value >= 1 && value <= largest, place, ": ", name, " = ", value, ": expected 1 to ",
            largest);
  };
  check("key_heads", delta.key_heads, 4096);
  check("value_heads", delta.value_heads, 4096);
  check("key_dim", delta.key_dim, kWidestHead);
  check("value_dim", delta.value_dim, kWidestHead);
  require(delta.conv_taps >= 2 && delta.conv_taps <= kMostTaps, place,
          ": conv_taps = ", delta.conv_taps, ": expected 2 to ", kMostTaps);
  require(delta.value_heads % delta.key_heads == 0, place, ": ", delta.value_heads,
          " value heads are no multiple of ", delta.key_heads, " key heads");
  require(delta == *config.delta_net(), place,
          ": layers of Gated DeltaNet differ in their sizes, expected all alike");
  require(!config.attention_layers().empty(), place,
          ": a model of Gated DeltaNet alone, expected some layers with attention");
  require(config.norm == NormKind::rms, place, ": Gated DeltaNet, expected RMS norms");
}

void check_mixer(const ModelConfig& config, std::int64_t layer, std::string_view place) {
  if (const auto* attention = config.layer(layer).attention()) {
    check_attention(config, *attention, place);
  }
  if (const auto* delta = config.layer(layer).delta_net()) check_delta_net(config, *delta, place);
}

void check_experts(const ModelConfig& config, const ExpertsMlpConfig& mlp, std::string_view place) {
  const auto check = [&](const char* name, std::int64_t value, std::int64_t low,
                         std::int64_t high) {
    require(value >= low && value <= high, place, ": ", name, " = ", value, ": expected ", low,
            " to ", high);
  };
  check("experts", mlp.experts, 1, kMostExperts);
  check("active experts", mlp.active, 1, mlp.experts);
  check("hidden of experts", mlp.hidden, 1, kWidestMlp);
  check("hidden of the shared expert", mlp.shared_hidden, 0, kWidestMlp);
  require(config.norm == NormKind::rms, place, ": experts after layer norms are not supported");
}

// Checks the norms of sublayer outputs, and the cap of the logits.
void check_additions(const ModelConfig& config, std::string_view source) {
  const auto& [scale, cap] = config.logit_cap;
  require(std::isfinite(scale) && scale > 0 && scale <= 1e6 && std::isfinite(cap) && cap >= 0 &&
              cap <= 1e6,
          source, ": logit_cap of scale ", scale, " and cap ", cap, ": expected up to 1e6");
  const float eps = config.post_norm_eps;
  require(std::isfinite(eps) && eps >= 0 && eps < 1, source, ": post_norm_eps = ", eps,
          ": expected 0 to 1");
  if (eps == 0) return;
  const bool plain = std::ranges::all_of(config.layers, [](const LayerConfig& layer) {
    return layer.attention() != nullptr && layer.dense_mlp() != nullptr;
  });
  require(plain && config.norm == NormKind::rms, source,
          ": post_norm_eps: expected layers of attention and a dense MLP with RMS norms");
}

void check_layers(const ModelConfig& config, std::string_view source, const FieldSpeller& spell) {
  check_layer_count(config.layer_count(), source, spell);
  const bool alike = uniform_layers(config.layers).has_value();
  for (std::int64_t i = 0; i < config.layer_count(); ++i) {
    const std::string place =
        std::string(source) + (alike ? "" : ": layers[" + std::to_string(i) + "]");
    require(config.window(i) >= 0 && config.window(i) <= kLargestWindow, place, ": window ",
            config.window(i), " is out of range");
    check_mixer(config, i, place);
    check_temperature(config, i, place);
    const DenseMlpConfig* mlp = config.layer(i).dense_mlp();
    require(mlp == nullptr || (mlp->hidden >= 1 && mlp->hidden <= kWidestMlp), place, ": ",
            spell("hidden"), " = ", mlp == nullptr ? 0 : mlp->hidden, ": expected 1 to ",
            kWidestMlp);
    if (config.layer(i).experts_mlp()) check_experts(config, *config.layer(i).experts_mlp(), place);
  }
}

}  // namespace

void check_layer_count(std::int64_t count, std::string_view source, const FieldSpeller& spell) {
  require(count >= 1 && count <= kMostLayers, source, ": ", spell("layers"), " = ", count,
          ": expected 1 to ", kMostLayers);
}

void check_config(const ModelConfig& config, std::string_view source, const FieldSpeller& spell) {
  check_layers(config, source, spell);
  for (const auto& field : kCounts) {
    const std::int64_t value = config.*field.member;
    require(value >= 1 && value <= field.largest, source, ": ", spell(field.name), " = ", value,
            ": expected 1 to ", field.largest);
  }
  require(config.head_dim % 2 == 0, source, ": ", spell("head_dim"), " = ", config.head_dim,
          ": expected an even number");
  require(config.heads % config.kv_heads == 0, source, ": ", config.heads,
          " heads are no multiple of ", config.kv_heads, " KV heads");
  require(config.heads * config.head_dim <= 1 << 22, source, ": ", config.heads, " heads of ",
          config.head_dim, " are too wide");
  require(std::isfinite(config.norm_eps) && config.norm_eps >= 0 && config.norm_eps < 1, source,
          ": ", spell("norm_eps"), " = ", config.norm_eps, ": expected 0 to 1");
  require(std::isfinite(config.rope_theta) && config.rope_theta >= 1, source,
          ": rope_theta = ", config.rope_theta, ": expected at least 1");
  check_scaling(config.rope_scaling, config.rope_dims(), source);
  check_additions(config, source);
  if (!config.mtp) return;
  require(config.mtp->attention() != nullptr, source, ": mtp: expected a layer with attention");
  check_config(mtp_model(config), std::string(source) + ": mtp", spell);
}

}  // namespace leq
