// The configuration as JSON of a .leq file (docs/leq-format.md): one entry for all layers, as in
// version 1.0, or a list. Names of layer kinds and of fields are defined here. Then the checks that
// every ModelConfig must pass, whatever file it was read from.

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "model/model_config.h"

namespace leq {
namespace {

// An integer field: its name in the file, and the largest value that is accepted.
struct CountField {
  const char* name;
  std::int64_t ModelConfig::*member;
  std::int64_t largest;
};
constexpr std::array<CountField, 6> kCounts = {{{"width", &ModelConfig::width, 1 << 20},
                                                {"heads", &ModelConfig::heads, 4096},
                                                {"kv_heads", &ModelConfig::kv_heads, 4096},
                                                {"head_dim", &ModelConfig::head_dim, 1024},
                                                {"vocab", &ModelConfig::vocab, 1 << 24},
                                                {"context", &ModelConfig::context, 1 << 24}}};

constexpr std::array<RopeScalingField, 8> kScalingFields = {
    {{"factor", &RopeScaling::factor},
     {"low_freq_factor", &RopeScaling::low_freq_factor},
     {"high_freq_factor", &RopeScaling::high_freq_factor},
     {"attention_factor", &RopeScaling::attention_factor},
     {"beta_fast", &RopeScaling::beta_fast},
     {"beta_slow", &RopeScaling::beta_slow},
     {"mscale", &RopeScaling::mscale},
     {"mscale_all_dim", &RopeScaling::mscale_all_dim}}};

constexpr std::int64_t kLargestWindow = 1 << 30;

constexpr std::array<std::string_view, 7> kScalingNames = {
    "none", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional"};

struct FactorList {
  const char* name;
  std::vector<double> RopeScaling::*member;
};
constexpr std::array<FactorList, 2> kFactorLists = {
    {{"short_factor", &RopeScaling::short_factor}, {"long_factor", &RopeScaling::long_factor}}};

Json scaling_to_json(const RopeScaling& scaling) {
  Json json = {{"type", kScalingNames[static_cast<std::size_t>(scaling.kind)]},
               {"original_context", scaling.original_context},
               {"truncate", scaling.truncate}};
  for (const auto& field : kScalingFields) json[field.name] = scaling.*field.member;
  for (const auto& [name, member] : kFactorLists) {
    if (scaling.kind == RopeScalingKind::longrope) json[name] = scaling.*member;
  }
  if (scaling.kind == RopeScalingKind::proportional) json["rotated"] = scaling.rotated;
  return json;
}

RopeScaling scaling_from_json(const Json& json, std::string_view source) {
  RopeScaling scaling;
  const auto name = json_get<std::string>(json, "type", source);
  const auto kind = parse_rope_scaling(name);
  require(kind.has_value(), source, ": rope_scaling type \"", printable(name), "\" is not known");
  scaling.kind = *kind;
  for (const auto& field : kScalingFields) {
    scaling.*field.member = json_get_or<double>(json, field.name, scaling.*field.member, source);
  }
  scaling.original_context = json_get_or<std::int64_t>(json, "original_context", 0, source);
  scaling.truncate = json_get_or<bool>(json, "truncate", true, source);
  scaling.rotated = json_get_or<double>(json, "rotated", 1, source);
  if (scaling.kind == RopeScalingKind::longrope) read_rope_factors(json, source, scaling);
  return scaling;
}

// The model's rule of rotary positions, or that of a layer: theta and scaling, without dims.
void rope_to_json(const RopeConfig& rope, Json& json) {
  json["rope_theta"] = rope.theta;
  json["rope_scaling"] = scaling_to_json(rope.scaling);
}

RopeConfig rope_from_json(const Json& json, std::string_view source) {
  RopeConfig rope = {.theta = json_get<double>(json, "rope_theta", source)};
  const auto scaling = json.find("rope_scaling");
  if (scaling != json.end()) rope.scaling = scaling_from_json(*scaling, source);
  return rope;
}

// Whether layers have different rotary positions, which are then written layer by layer.
bool has_several_ropes(const ModelConfig& config) { return config.ropes().size() > 1; }

struct FlagField {
  const char* name;
  bool AttentionConfig::*member;
};
constexpr std::array<FlagField, 3> kAttentionFlags = {
    {{"qkv_bias", &AttentionConfig::qkv_bias},
     {"output_bias", &AttentionConfig::output_bias},
     {"qk_norm", &AttentionConfig::qk_norm}}};

// Sets what both forms of layers have: whether there is RoPE, with the model's rule, and the flags.
void flags_to_json(const AttentionConfig& attention, Json& json) {
  json["rotary"] = attention.rope.has_value();
  for (const auto& field : kAttentionFlags) json[field.name] = attention.*field.member;
}

void flags_from_json(const Json& json, const Json& model, std::string_view source,
                     AttentionConfig& attention) {
  attention.rope.reset();
  if (json_get<bool>(json, "rotary", source)) attention.rope = rope_from_json(model, source);
  for (const auto& field : kAttentionFlags) {
    attention.*field.member = json_get<bool>(json, field.name, source);
  }
}

constexpr std::array<std::string_view, 3> kActivationNames = {"silu", "gelu_tanh",
                                                              "clamped_swiglu"};

// The activation of files without the key.
Activation usual_activation(bool gated) { return gated ? Activation::silu : Activation::gelu_tanh; }

void activation_to_json(Activation activation, Activation usual, Json& json) {
  if (activation == usual) return;
  json["activation"] = kActivationNames[static_cast<std::size_t>(activation)];
}

Activation activation_from_json(const Json& json, Activation usual, std::string_view source) {
  if (json.find_given("activation") == nullptr) return usual;
  const auto name = json_get<std::string>(json, "activation", source);
  const auto found = std::ranges::find(kActivationNames, name);
  require(found != kActivationNames.end(), source, ": activation \"", printable(name),
          "\" is not known");
  return static_cast<Activation>(found - kActivationNames.begin());
}

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
  flags_to_json(layers.attention, json);
  json["hidden"] = layers.mlp.hidden;
  json["gated"] = layers.mlp.gated;
  json["mlp_bias"] = layers.mlp.bias;
}

UniformLayers uniform_from_json(const Json& json, std::string_view source) {
  UniformLayers layers;
  layers.count = json_get<std::int64_t>(json, "layers", source);
  layers.mlp.hidden = json_get<std::int64_t>(json, "hidden", source);
  flags_from_json(json, json, source, layers.attention);
  layers.mlp.gated = json_get<bool>(json, "gated", source);
  layers.mlp.activation = usual_activation(layers.mlp.gated);
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
                           kConvKind = "short_conv", kDenseKind = "dense", kExpertsKind = "experts";

Json to_json(const AttentionConfig& attention) {
  Json json = {{"kind", kAttentionKind}, {"window", attention.window}};
  flags_to_json(attention, json);
  if (attention.rope && attention.rope->dims > 0) json["rotary_dims"] = attention.rope->dims;
  if (attention.output_gate) json["output_gate"] = true;
  if (attention.temperature.period != 0) {
    json["temperature"] = {{"beta", attention.temperature.beta},
                           {"period", attention.temperature.period}};
  }
  if (attention.query_scale != 0) json["query_scale"] = attention.query_scale;
  if (attention.sinks) json["sinks"] = true;
  if (attention.v_norm) json["v_norm"] = true;
  if (attention.kv_of >= 0) json["kv_of"] = attention.kv_of;
  if (attention.own_heads.count > 0) {
    json["kv_heads"] = attention.own_heads.count;
    json["head_dim"] = attention.own_heads.dims;
  }
  if (attention.both_ways) json["both_ways"] = true;
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

AttentionConfig attention_from_json(const Json& mixer, const Json& model, std::string_view source) {
  AttentionConfig attention;
  const auto window = mixer.find("window");
  require(window != mixer.end(), source, ": mixer: window is missing");
  attention.window = window_from_json(*window, source);
  const Json* own = mixer.find_given("rope");
  flags_from_json(mixer, own != nullptr ? *own : model, source, attention);
  if (attention.rope) {
    attention.rope->dims = json_get_or<std::int32_t>(mixer, "rotary_dims", 0, source);
  }
  attention.output_gate = json_get_or<bool>(mixer, "output_gate", false, source);
  attention.temperature = temperature_from_json(mixer, source);
  attention.query_scale = json_get_or<double>(mixer, "query_scale", 0, source);
  attention.sinks = json_get_or<bool>(mixer, "sinks", false, source);
  attention.v_norm = json_get_or<bool>(mixer, "v_norm", false, source);
  if (mixer.find_given("kv_of") != nullptr) {
    attention.kv_of = json_get<std::int64_t>(mixer, "kv_of", source);
    require(attention.kv_of >= 0, source, ": mixer: kv_of = ", attention.kv_of);
  }
  if (mixer.find_given("kv_heads") != nullptr) {
    attention.own_heads = {json_get<std::int64_t>(mixer, "kv_heads", source),
                           json_get<std::int64_t>(mixer, "head_dim", source)};
    // 0 means "the model's" only in memory.
    require(attention.own_heads.count != 0, source, ": mixer: kv_heads = 0");
  }
  attention.both_ways = json_get_or<bool>(mixer, "both_ways", false, source);
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

Json to_json(const ShortConvConfig& conv) { return {{"kind", kConvKind}, {"taps", conv.taps}}; }

Json to_json(const DenseMlpConfig& mlp) {
  Json json = {
      {"kind", kDenseKind}, {"hidden", mlp.hidden}, {"gated", mlp.gated}, {"bias", mlp.bias}};
  activation_to_json(mlp.activation, usual_activation(mlp.gated), json);
  return json;
}

DenseMlpConfig dense_from_json(const Json& json, std::string_view source) {
  DenseMlpConfig mlp;
  mlp.hidden = json_get<std::int64_t>(json, "hidden", source);
  mlp.gated = json_get<bool>(json, "gated", source);
  mlp.bias = json_get<bool>(json, "bias", source);
  mlp.activation = activation_from_json(json, usual_activation(mlp.gated), source);
  return mlp;
}

struct ExpertCount {
  const char* name;
  std::int64_t ExpertsMlpConfig::*member;
};
constexpr std::array<ExpertCount, 4> kExpertCounts = {
    {{"experts", &ExpertsMlpConfig::experts},
     {"active", &ExpertsMlpConfig::active},
     {"hidden", &ExpertsMlpConfig::hidden},
     {"shared_hidden", &ExpertsMlpConfig::shared_hidden}}};

Json to_json(const ExpertsMlpConfig& mlp) {
  Json json = {{"kind", kExpertsKind}, {"normalized", mlp.normalized}};
  for (const auto& field : kExpertCounts) json[field.name] = mlp.*field.member;
  activation_to_json(mlp.activation, Activation::silu, json);
  if (mlp.bias) json["bias"] = true;
  if (mlp.sigmoid) json["sigmoid"] = true;
  if (mlp.choice_bias) json["choice_bias"] = true;
  if (mlp.weight_scale != 1) json["weight_scale"] = mlp.weight_scale;
  if (mlp.dense_hidden > 0) json["dense_hidden"] = mlp.dense_hidden;
  return json;
}

ExpertsMlpConfig experts_from_json(const Json& mlp, std::string_view source) {
  ExpertsMlpConfig experts;
  experts.normalized = json_get<bool>(mlp, "normalized", source);
  for (const auto& field : kExpertCounts) {
    experts.*field.member = json_get<std::int64_t>(mlp, field.name, source);
  }
  experts.activation = activation_from_json(mlp, Activation::silu, source);
  experts.bias = json_get_or<bool>(mlp, "bias", false, source);
  experts.sigmoid = json_get_or<bool>(mlp, "sigmoid", false, source);
  experts.choice_bias = json_get_or<bool>(mlp, "choice_bias", false, source);
  experts.weight_scale = json_get_or<double>(mlp, "weight_scale", 1, source);
  experts.dense_hidden = json_get_or<std::int64_t>(mlp, "dense_hidden", 0, source);
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

// One layer of the file's list. `model`: the whole configuration, which may hold the rule of RoPE.
LayerConfig layer_from_json(const Json& json, const Json& model, std::string_view source) {
  require(json.is_object(), source, ": expected an object");
  constexpr std::array kMixers = {kAttentionKind, kDeltaKind, kConvKind};
  constexpr std::array kMlps = {kDenseKind, kExpertsKind};
  LayerConfig layer;
  const auto [mixer, kind] = section_of(json, "mixer", kMixers, source);
  if (kind == kDeltaKind) {
    layer.mixer = delta_from_json(mixer, source);
  } else if (kind == kConvKind) {
    layer.mixer = ShortConvConfig{json_get<std::int64_t>(mixer, "taps", source)};
  } else {
    layer.mixer = attention_from_json(mixer, model, source);
  }
  const auto [mlp, mlp_kind] = section_of(json, "mlp", kMlps, source);
  if (mlp_kind == kExpertsKind) {
    layer.mlp = experts_from_json(mlp, source);
  } else {
    layer.mlp = dense_from_json(mlp, source);
  }
  return layer;
}

std::vector<LayerConfig> listed_layers(const Json& json, const Json& model,
                                       std::string_view source) {
  check_layer_count(static_cast<std::int64_t>(json.size()), source);
  std::vector<LayerConfig> layers;
  for (const Json& layer : json) {
    const std::string place =
        std::string(source) + ": layers[" + std::to_string(layers.size()) + "]";
    layers.push_back(layer_from_json(layer, model, place));
  }
  return layers;
}

// The layers if version 1.0 can express them, otherwise nullopt. Version 1.0 assumes learned
// positions in models without RoPE.
std::optional<UniformLayers> version_1_0_layers(const ModelConfig& config) {
  auto uniform = uniform_layers(config.layers);
  if (!uniform) return uniform;
  const AttentionConfig& attention = uniform->attention;
  const bool newer = (attention.rope && attention.rope->dims > 0) || attention.output_gate ||
                     attention.temperature.period != 0 || attention.query_scale != 0 ||
                     attention.sinks || attention.v_norm || attention.both_ways ||
                     attention.own_heads.count > 0 || attention.kv_of >= 0 ||
                     uniform->mlp.activation != usual_activation(uniform->mlp.gated) ||
                     has_several_ropes(config);
  if (newer || attention.rope.has_value() == config.learned_positions) uniform.reset();
  return uniform;
}

Json layer_of(const ModelConfig& config, const LayerConfig& layer) {
  Json json = layer_to_json(layer);
  const AttentionConfig* attention = layer.attention();
  if (attention != nullptr && attention->rope && has_several_ropes(config)) {
    rope_to_json(*attention->rope, json["mixer"]["rope"]);
  }
  return json;
}

void layers_to_json(const ModelConfig& config, Json& json) {
  if (const auto uniform = version_1_0_layers(config)) return add_uniform_layers(*uniform, json);
  json["learned_positions"] = config.learned_positions;
  json["layers"] = Json::array();
  for (const LayerConfig& layer : config.layers) json["layers"].push_back(layer_of(config, layer));
}

// Sets layers and learned_positions.
void layers_from_json(const Json& json, std::string_view source, ModelConfig& config) {
  const auto layers = json.find("layers");
  if (layers != json.end() && layers->is_array()) {
    config.layers = listed_layers(*layers, json, source);
    config.learned_positions = json_get<bool>(json, "learned_positions", source);
    return;
  }
  const UniformLayers uniform = uniform_from_json(json, source);
  config.layers = uniform.layers();
  config.learned_positions = !uniform.attention.rope;
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

std::span<const RopeScalingField> rope_scaling_fields() { return kScalingFields; }

void read_rope_factors(const Json& json, std::string_view source, RopeScaling& scaling) {
  for (const auto& [name, member] : kFactorLists) {
    const Json* list = json.find_given(name);
    require(list != nullptr && list->is_array(), source, ": ", name,
            ": expected a list of numbers");
    for (const Json& number : *list) {
      require(number.is_number(), source, ": ", name, ": expected a list of numbers");
      (scaling.*member).push_back(number.get<double>());
    }
  }
}

std::string_view rope_scaling_name(RopeScalingKind kind) {
  return kScalingNames[static_cast<std::size_t>(kind)];
}

std::optional<RopeScalingKind> parse_rope_scaling(std::string_view name) {
  const auto found = std::ranges::find(kScalingNames, name);
  if (found == kScalingNames.end()) return std::nullopt;
  return static_cast<RopeScalingKind>(found - kScalingNames.begin());
}

Json layer_to_json(const LayerConfig& layer) {
  const auto part = [](const auto& kind) { return to_json(kind); };
  return {{"mixer", std::visit(part, layer.mixer)}, {"mlp", std::visit(part, layer.mlp)}};
}

Json config_to_json(const ModelConfig& config) {
  Json json = {{"family", config.family},
               {"norm", config.norm == NormKind::rms ? "rms" : "layer"},
               {"norm_eps", config.norm_eps},
               {"tied", config.tied}};
  const std::vector<RopeConfig> ropes = config.ropes();
  if (ropes.size() <= 1) rope_to_json(ropes.empty() ? RopeConfig() : ropes.front(), json);
  for (const auto& field : kCounts) json[field.name] = config.*field.member;
  if (config.post_norm_eps > 0) json["post_norm_eps"] = config.post_norm_eps;
  if (config.logit_cap.cap > 0) {
    json["logit_cap"] = {{"scale", config.logit_cap.scale}, {"cap", config.logit_cap.cap}};
  }
  if (config.embedding_scale != 1) json["embedding_scale"] = config.embedding_scale;
  if (config.layer_scales) json["layer_scales"] = true;
  if (config.layer_input > 0) json["layer_input"] = config.layer_input;
  if (config.embedding_projection) json["embedding_projection"] = true;
  layers_to_json(config, json);
  if (config.mtp) json["mtp"] = layer_of(config, *config.mtp);
  return json;
}

std::vector<std::string> required_features(const ModelConfig& config) {
  std::vector<std::string> features;
  if (!version_1_0_layers(config)) features.emplace_back("layers");
  const auto add = [&](const char* feature, auto has) {
    const bool any = std::ranges::any_of(config.layers, [&](const LayerConfig& layer) {
      return layer.attention() != nullptr && has(*layer.attention());
    });
    if (any) features.emplace_back(feature);
  };
  add("rotary_dims", [](const auto& one) { return one.rope && one.rope->dims > 0; });
  add("output_gate", [](const auto& one) { return one.output_gate; });
  if (config.delta_net() != nullptr) features.emplace_back("delta_net");
  if (config.has_experts()) features.emplace_back("experts");
  if (config.temperature().period != 0) features.emplace_back("temperature");
  if (config.post_norm_eps > 0) features.emplace_back("post_norm");
  if (config.logit_cap.cap > 0) features.emplace_back("logit_cap");
  if (has_several_ropes(config)) features.emplace_back("layer_rope");
  add("query_scale", [](const auto& one) { return one.query_scale != 0; });
  if (config.embedding_scale != 1) features.emplace_back("embedding_scale");
  add("sinks", [](const auto& one) { return one.sinks; });
  add("v_norm", [](const auto& one) { return one.v_norm; });
  add("layer_heads", [](const auto& one) { return one.own_heads.count > 0; });
  if (config.layer_scales) features.emplace_back("layer_scales");
  add("kv_of", [](const auto& one) { return one.kv_of >= 0; });
  if (config.layer_input > 0) features.emplace_back("layer_input");
  bool newer = false, expert_bias = false, beside = false, short_conv = false, router = false;
  for (const LayerConfig& layer : config.layers) {
    const auto [dense, experts] = std::pair(layer.dense_mlp(), layer.experts_mlp());
    newer |= dense != nullptr ? dense->activation != usual_activation(dense->gated)
                              : experts->activation != Activation::silu;
    router |= experts != nullptr &&
              (experts->sigmoid || experts->choice_bias || experts->weight_scale != 1);
    short_conv |= layer.short_conv() != nullptr;
    expert_bias |= experts != nullptr && experts->bias;
    beside |= experts != nullptr && experts->dense_hidden > 0;
  }
  if (newer) features.emplace_back("activation");
  if (expert_bias) features.emplace_back("expert_bias");
  if (short_conv) features.emplace_back("short_conv");
  if (router) features.emplace_back("router");
  if (beside) features.emplace_back("dense_beside");
  if (config.both_ways()) features.emplace_back("both_ways");
  if (config.embedding_projection) features.emplace_back("embedding_projection");
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
  config.embedding_scale = json_get_or<double>(json, "embedding_scale", 1, source);
  config.embedding_projection = json_get_or<bool>(json, "embedding_projection", false, source);
  config.post_norm_eps = json_get_or<float>(json, "post_norm_eps", 0, source);
  config.layer_scales = json_get_or<bool>(json, "layer_scales", false, source);
  config.layer_input = json_get_or<std::int64_t>(json, "layer_input", 0, source);
  config.logit_cap = logit_cap_from_json(json, source);
  layers_from_json(json, source, config);
  require(json.find_given("rotation") == nullptr, source,
          ": rotation: expected none, because rotated (Hadamard) weights are not supported since "
          "0.2; quantize the checkpoint again, unrotated");
  if (const Json* mtp = json.find_given("mtp")) {
    config.mtp = layer_from_json(*mtp, json, std::string(source) + ": mtp");
  }
  check_config(config, source);
  return config;
}

namespace {

constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kWidestMlp = 1 << 22;
constexpr std::int64_t kMaxExperts = 4096;
constexpr std::int64_t kMaxExpertsOfAll = 1 << 17;  // of all layers; each has tensors of its own

void check_longrope(const RopeScaling& scaling, std::int64_t dims, std::string_view source) {
  require(scaling.original_context > 1, source,
          ": rope_scaling longrope needs original_max_position_embeddings above 1");
  for (const auto& [name, member] : kFactorLists) {
    const std::vector<double>& factors = scaling.*member;
    require(std::ssize(factors) == dims / 2, source, ": rope_scaling ", name, " has ",
            factors.size(), " numbers: expected ", dims / 2);
    for (const double factor : factors) {
      require(std::isfinite(factor) && factor >= 1e-3 && factor <= 1e6, source, ": rope_scaling ",
              name, " has ", factor, ": expected 0.001 to 1e6");
    }
  }
}

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
  if (scaling.kind == RopeScalingKind::longrope) check_longrope(scaling, head_dim, source);
  require(scaling.rotated > 0 && scaling.rotated <= 1, source,
          ": rope_scaling rotated = ", scaling.rotated, ": expected above 0, at most 1");
  require(scaling.kind != RopeScalingKind::dynamic || head_dim > 2, source,
          ": rope_scaling dynamic needs a head_dim above 2");
}

constexpr std::int64_t kMaxTaps = 16;
constexpr std::int64_t kWidestHead = 1024;

void check_attention(const ModelConfig& config, const AttentionConfig& attention,
                     std::string_view place) {
  const auto [kv_heads, head_dim] = config.kv_heads_of(attention);
  require(kv_heads >= 1 && config.heads % kv_heads == 0, place, ": ", config.heads,
          " heads are no multiple of ", kv_heads, " KV heads");
  require(head_dim >= 2 && head_dim <= kWidestHead && head_dim % 2 == 0, place,
          ": head_dim = ", head_dim, ": expected an even number up to ", kWidestHead);
  require(!attention.v_norm || config.norm == NormKind::rms, place, ": v_norm needs RMS norms");
  if (attention.kv_of >= 0) {
    const AttentionConfig* from = attention.kv_of < config.layer_count()
                                      ? config.layer(attention.kv_of).attention()
                                      : nullptr;
    require(from != nullptr && from != &attention && from < &attention && from->kv_of < 0 &&
                config.kv_heads_of(*from) == config.kv_heads_of(attention) && attention.qk_norm &&
                !attention.qkv_bias,
            place, ": kv_of = ", attention.kv_of, ": expected an earlier layer of attention with ",
            "keys and values of its own and the same heads, and norms of q");
  }
  if (attention.rope) {
    const std::int64_t dims = attention.rope->dims;
    const std::int64_t fewest = attention.own_heads.count > 0 ? 2 : 0;
    require(dims >= fewest && dims <= head_dim && dims % 2 == 0, place, ": rotary_dims = ", dims,
            ": expected an even number from ", fewest, " to head_dim ", head_dim);
    const double theta = attention.rope->theta;
    require(std::isfinite(theta) && theta >= 1, place, ": rope_theta = ", theta,
            ": expected at least 1");
    check_scaling(attention.rope->scaling, config.rope_dims(*attention.rope), place);
  }
  const double scale = attention.query_scale;
  require(std::isfinite(scale) && scale >= 0 && scale <= 1e6, place, ": query_scale = ", scale,
          ": expected 0 to 1e6");
  if (attention.temperature.period != 0) {
    const auto& [beta, period] = attention.temperature;
    require(std::isfinite(beta) && beta > 0 && beta <= 1e3, place, ": temperature beta = ", beta,
            ": expected above 0, at most 1000");
    require(period >= 1 && period <= 1 << 24, place, ": temperature period = ", period,
            ": expected 1 to ", 1 << 24);
  }
  const auto first = config.attention_layers().front();
  const AttentionConfig& other = *config.layer(first).attention();
  require(attention.output_gate == other.output_gate, place, ": output_gate unlike that of layers[",
          first, "]: expected all alike");
  require(attention.both_ways == other.both_ways && (!attention.both_ways || !config.mtp), place,
          ": both_ways unlike that of layers[", first, "], or with a head that drafts");
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
  require(delta.conv_taps >= 2 && delta.conv_taps <= kMaxTaps, place,
          ": conv_taps = ", delta.conv_taps, ": expected 2 to ", kMaxTaps);
  require(delta.value_heads % delta.key_heads == 0, place, ": ", delta.value_heads,
          " value heads are no multiple of ", delta.key_heads, " key heads");
  require(delta == *config.delta_net(), place,
          ": layers of Gated DeltaNet differ in their sizes, expected all alike");
  require(!config.attention_layers().empty(), place,
          ": a model of Gated DeltaNet alone, expected some layers with attention");
  require(config.norm == NormKind::rms, place, ": Gated DeltaNet, expected RMS norms");
}

void check_short_conv(const ModelConfig& config, const ShortConvConfig& conv,
                      std::string_view place) {
  require(conv.taps >= 2 && conv.taps <= kMaxTaps, place, ": taps = ", conv.taps,
          ": expected 2 to ", kMaxTaps);
  require(!config.attention_layers().empty(), place,
          ": a model of short convolutions alone, expected some layers with attention");
}

void check_experts(const ModelConfig& config, const ExpertsMlpConfig& mlp, std::string_view place) {
  const auto check = [&](const char* name, std::int64_t value, std::int64_t low,
                         std::int64_t high) {
    require(value >= low && value <= high, place, ": ", name, " = ", value, ": expected ", low,
            " to ", high);
  };
  check("experts", mlp.experts, 1, kMaxExperts);
  check("active experts", mlp.active, 1, mlp.experts);
  check("hidden of experts", mlp.hidden, 1, kWidestMlp);
  check("hidden of the shared expert", mlp.shared_hidden, 0, kWidestMlp);
  require(std::isfinite(mlp.weight_scale) && mlp.weight_scale > 0 && mlp.weight_scale <= 1e6, place,
          ": weight_scale = ", mlp.weight_scale, ": expected above 0, at most 1e6");
  check("dense_hidden", mlp.dense_hidden, 0, kWidestMlp);
  require(
      mlp.dense_hidden == 0 || (config.post_norm_eps > 0 && mlp.shared_hidden == 0 && !mlp.bias),
      place, ": dense_hidden needs post_norm_eps above 0, and experts without biases and ",
      "without a shared one");
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
  require(eps > 0 || !config.layer_scales, source, ": layer_scales needs post_norm_eps above 0");
  require(config.layer_input >= 0 && config.layer_input <= 1 << 16 &&
              (config.layer_input == 0 || eps > 0),
          source, ": layer_input = ", config.layer_input,
          ": expected 0 to 65536, and post_norm_eps above 0");
  if (eps == 0) return;
  const bool plain = std::ranges::all_of(config.layers, [](const LayerConfig& layer) {
    const ExpertsMlpConfig* experts = layer.experts_mlp();
    return layer.attention() != nullptr && (experts == nullptr || experts->dense_hidden > 0);
  });
  require(plain && config.norm == NormKind::rms, source, ": post_norm_eps = ", eps,
          " needs attention and a dense MLP in every layer, and RMS norms");
}

void check_layers(const ModelConfig& config, std::string_view source, const FieldSpeller& spell) {
  check_layer_count(config.layer_count(), source, spell);
  const bool alike = uniform_layers(config.layers).has_value();
  std::int64_t experts = 0;
  for (std::int64_t i = 0; i < config.layer_count(); ++i) {
    const std::string place =
        std::string(source) + (alike ? "" : ": layers[" + std::to_string(i) + "]");
    require(config.window(i) >= 0 && config.window(i) <= kLargestWindow, place, ": window ",
            config.window(i), " is out of range");
    if (const auto* attention = config.layer(i).attention()) {
      check_attention(config, *attention, place);
    }
    if (const auto* delta = config.layer(i).delta_net()) check_delta_net(config, *delta, place);
    if (const auto* conv = config.layer(i).short_conv()) check_short_conv(config, *conv, place);
    const DenseMlpConfig* mlp = config.layer(i).dense_mlp();
    require(mlp == nullptr || (mlp->hidden >= 1 && mlp->hidden <= kWidestMlp), place, ": ",
            spell("hidden"), " = ", mlp == nullptr ? 0 : mlp->hidden, ": expected 1 to ",
            kWidestMlp);
    require(mlp == nullptr || mlp->gated || mlp->activation != Activation::clamped_swiglu, place,
            ": activation clamped_swiglu needs a gated MLP");
    if (const ExpertsMlpConfig* of = config.layer(i).experts_mlp()) {
      check_experts(config, *of, place);
      experts += of->experts;
    }
  }
  require(experts <= kMaxExpertsOfAll, source, ": ", experts, " experts in all layers, at most ",
          kMaxExpertsOfAll, " are accepted");
}

}  // namespace

void check_layer_count(std::int64_t count, std::string_view source, const FieldSpeller& spell) {
  require(count >= 1 && count <= kMaxLayers, source, ": ", spell("layers"), " = ", count,
          ": expected 1 to ", kMaxLayers);
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
  require(std::isfinite(config.embedding_scale) && config.embedding_scale > 0 &&
              config.embedding_scale <= 1e6,
          source, ": embedding_scale = ", config.embedding_scale,
          ": expected above 0, at most 1e6");
  check_additions(config, source);
  if (!config.mtp) return;
  require(config.mtp->attention() != nullptr, source, ": mtp: expected a layer with attention");
  check_config(mtp_model(config), std::string(source) + ": mtp", spell);
}

}  // namespace leq
