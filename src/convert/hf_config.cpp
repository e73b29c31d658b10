// Converts config.json of Hugging Face checkpoints (transformers 4 or 5) to ModelConfig.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/hf_config_parts.h"
#include "convert/hf_import.h"
#include "convert/quantization_config.h"
#include "families/family.h"

namespace leq {
namespace {

std::string supported_families() {
  std::vector<std::string> names;
  for (const Family* family : families()) names.emplace_back(family->model_type);
  return join(names);
}

const Family& family_of(const Json& json, std::string_view source) {
  const auto type = json_get<std::string>(json, "model_type", source);
  const Family* family = find_family(type);
  const std::string_view what = known_but_not_run(type);
  require(family != nullptr, source, ": model_type \"", printable(type), "\" is not supported",
          what.empty() ? "" : " (" + std::string(what) + ")", "; supported are ",
          supported_families());
  const Json* names = json.find_given("architectures");
  if (names == nullptr) return *family;
  require(names->is_array(), source, ": architectures: expected a list of names");
  for (const auto& name : *names) {
    require(name.is_string(), source, ": architectures: expected a list of names");
    const auto& text = name.text();
    const auto& known = family->architectures;
    require(std::find(known.begin(), known.end(), text) != known.end(), source, ": architecture \"",
            printable(text), "\" is not supported; expected ", known.front());
  }
  return *family;
}

// Refuses keys that change the model's function in a way that leq does not support.
void refuse_unsupported(const Json& json, const Family& family, std::string_view source) {
  read_quantization_config(json, source);
  for (const Family::Fixed& fixed : family.fixed) {
    require(json_get_or<bool>(json, fixed.key, fixed.value, source) == fixed.value, source, ": ",
            fixed.key, " = ", fixed.value ? "false" : "true", " is not supported");
  }
  const auto rotary = json_get_or<double>(json, "partial_rotary_factor", 1.0, source);
  require(rotary == 1.0 || family.reads_partial_rotary, source,
          ": partial_rotary_factor = ", rotary, " is not supported");
  const auto activation = json_get_or<std::string>(json, family.keys.activation,
                                                   std::string(family.activations.front()), source);
  const auto& known = family.activations;
  require(std::find(known.begin(), known.end(), activation) != known.end(), source, ": ",
          family.keys.activation, " \"", printable(activation), "\" is not supported; expected ",
          known.front());
}

RopeScaling scaling_of(const Json& json, std::string_view source) {
  RopeScaling scaling;
  std::string type = json_get_or<std::string>(json, "rope_type", "", source);
  if (type.empty()) type = json_get_or<std::string>(json, "type", "default", source);
  // For text, the three position ids of M-RoPE are equal, so M-RoPE is plain RoPE.
  if (type == "default" || type == "mrope") return scaling;
  bool known = false;
  for (const auto kind : {RopeScalingKind::linear, RopeScalingKind::dynamic,
                          RopeScalingKind::llama3, RopeScalingKind::yarn}) {
    if (type != rope_scaling_name(kind)) continue;
    scaling.kind = kind;
    known = true;
  }
  require(known, source, ": rope_scaling type ", printable(type),
          " is not supported; supported are linear, dynamic, llama3, yarn");
  scaling.factor = json_get<double>(json, "factor", source);
  const auto number = [&](const char* key, double& value) {
    value = json_get_or<double>(json, key, value, source);
  };
  number("low_freq_factor", scaling.low_freq_factor);
  number("high_freq_factor", scaling.high_freq_factor);
  number("attention_factor", scaling.attention_factor);
  number("beta_fast", scaling.beta_fast);
  number("beta_slow", scaling.beta_slow);
  number("mscale", scaling.mscale);
  number("mscale_all_dim", scaling.mscale_all_dim);
  scaling.truncate = json_get_or<bool>(json, "truncate", true, source);
  scaling.original_context =
      json_get_or<std::int64_t>(json, "original_max_position_embeddings", 0, source);
  // For dynamic scaling transformers 4 uses the model's context length and ignores other keys.
  if (scaling.kind == RopeScalingKind::dynamic) scaling.original_context = 0;
  return scaling;
}

// Reads rope_theta and rope_scaling (transformers 4) or rope_parameters (transformers 5).
void read_rope(const Json& json, const Family& family, ModelConfig& config,
               std::string_view source) {
  config.rope_theta = json_get_or<double>(json, "rope_theta", 10000.0, source);
  const Json* parameters = json.find_given("rope_parameters");
  const Json* scaling = parameters != nullptr ? parameters : json.find_given("rope_scaling");
  if (scaling == nullptr) return;
  require(scaling->is_object(), source, ": rope_scaling: expected an object");
  for (const auto& [key, value] : scaling->items()) {
    require(!value.is_object(), source, ": rope parameters for each kind of layer (\"",
            printable(key), "\") are not supported");
  }
  const auto partial = json_get_or<double>(*scaling, "partial_rotary_factor", 1.0, source);
  require(partial == 1.0 || family.reads_partial_rotary, source,
          ": partial_rotary_factor = ", partial, " is not supported");
  config.rope_theta = json_get_or<double>(*scaling, "rope_theta", config.rope_theta, source);
  config.rope_scaling = scaling_of(*scaling, source);
}

// The query temperature in rope_parameters, which applies to all layers.
QueryTemperature read_temperature(const Json& json, const Family& family, std::string_view source) {
  const Json* rope = json.find_given("rope_parameters");
  if (rope == nullptr) rope = json.find_given("rope_scaling");
  if (!family.query_temperature || rope == nullptr) return {};
  const auto beta = json_get_or<double>(*rope, "llama_4_scaling_beta", 0, source);
  if (beta == 0) return {};
  const auto period =
      json_get_or<std::int64_t>(*rope, "original_max_position_embeddings",
                                json_get<std::int64_t>(json, family.keys.context, source), source);
  require(period > 0, source, ": original_max_position_embeddings = ", period,
          " with llama_4_scaling_beta: expected at least 1");
  return {beta, period};
}

// The attention window of layer `layer` of `layers` by the family's own rule.
std::int32_t ruled_window(const Json& json, WindowRule rule, std::int64_t layer,
                          std::int64_t layers, std::string_view source) {
  const std::int64_t default_window = rule == WindowRule::named             ? 0
                                      : rule == WindowRule::all_but_fourths ? 2048
                                                                            : 4096;
  if (rule == WindowRule::none) return 0;
  if (rule == WindowRule::all_but_fourths && (layers - 1 - layer) % 4 == 0) return 0;
  const auto key = json.find("sliding_window");
  const auto window = key == json.end() ? default_window
                      : key->is_null()  ? 0
                                        : json_get<std::int64_t>(json, "sliding_window", source);
  require(window >= 0 && window <= 1 << 30, source, ": sliding_window = ", window);
  if (rule == WindowRule::all_layers || rule == WindowRule::named ||
      rule == WindowRule::all_but_fourths) {
    return static_cast<std::int32_t>(window);
  }
  if (!json_get_or<bool>(json, "use_sliding_window", false, source)) return 0;
  if (rule == WindowRule::switched) return static_cast<std::int32_t>(window);
  const auto first = json_get_or<std::int64_t>(json, "max_window_layers", 28, source);
  return layer >= first ? static_cast<std::int32_t>(window) : 0;
}

void read_windows(const Json& json, const Family& family, UniformLayers& layers,
                  std::string_view source) {
  const Json* types = json.find_given("layer_types");
  if (family.windows == WindowRule::none && types == nullptr) return;
  require(types == nullptr || (types->is_array() && std::ssize(*types) == layers.count), source,
          ": layer_types: expected a list of ", layers.count, " names");
  for (std::int64_t i = 0; i < layers.count; ++i) {
    std::int32_t window = ruled_window(json, family.windows, i, layers.count, source);
    if (types != nullptr) {
      const Json& name = (*types)[static_cast<std::size_t>(i)];
      const bool recurrent = name == "linear_attention" && family.delta != nullptr;
      require(name == "full_attention" || name == "sliding_attention" || recurrent, source,
              ": layer_types[", i, "] = ", printable(name.dump()), " is not supported");
      window =
          name == "full_attention" || recurrent
              ? 0
              : static_cast<std::int32_t>(json_get<std::int64_t>(json, "sliding_window", source));
    }
    layers.windows.push_back(window);
  }
}

// The key in config.json that corresponds to a field of leq.
std::string config_key(const ConfigKeys& keys, std::string_view name) {
  struct Named {
    std::string_view name;
    const char* ConfigKeys::*key;
  };
  constexpr std::array<Named, 9> kNamed = {{{"width", &ConfigKeys::width},
                                            {"layers", &ConfigKeys::layers},
                                            {"heads", &ConfigKeys::heads},
                                            {"kv_heads", &ConfigKeys::kv_heads},
                                            {"head_dim", &ConfigKeys::head_dim},
                                            {"hidden", &ConfigKeys::hidden},
                                            {"vocab", &ConfigKeys::vocab},
                                            {"context", &ConfigKeys::context},
                                            {"norm_eps", &ConfigKeys::norm_eps}}};
  const auto found = std::ranges::find(kNamed, name, &Named::name);
  const bool known = found != kNamed.end() && keys.*found->key != nullptr;
  return known ? keys.*found->key : std::string(name);
}

}  // namespace

ModelConfig import_hf_config(std::string_view json_text, std::string_view source) {
  const Json json =
      complete_hf_config(text_config_of(parse_json(json_text, source), source), source);
  require(json.is_object(), source, ": expected a JSON object");
  const Family& family = family_of(json, source);
  refuse_unsupported(json, family, source);
  const ConfigKeys& keys = family.keys;
  const auto count = [&](const char* key) { return json_get<std::int64_t>(json, key, source); };
  const auto is_given = [&](const char* key) {
    return key != nullptr && json.find_given(key) != nullptr;
  };
  const auto count_or = [&](const char* key, std::int64_t fallback) {
    return is_given(key) ? count(key) : fallback;
  };
  ModelConfig config;
  config.family = family.name;
  config.width = count(keys.width);
  UniformLayers layers;
  layers.count = count(keys.layers);
  config.heads = count(keys.heads);
  require(config.heads >= 1 && config.width >= 1, source, ": ", config.heads, " heads, width ",
          config.width);
  config.kv_heads = count_or(keys.kv_heads, config.heads);
  if (!is_given(keys.head_dim) && family.default_head_dim == 0) {
    require(config.width % config.heads == 0, source, ": width ", config.width,
            " is no multiple of ", config.heads, " heads, and head_dim is not given");
  }
  config.head_dim =
      count_or(keys.head_dim,
               family.default_head_dim > 0 ? family.default_head_dim : config.width / config.heads);
  layers.mlp.hidden =
      family.hidden_is_optional ? count_or(keys.hidden, 4 * config.width) : count(keys.hidden);
  config.vocab = count(keys.vocab);
  config.context = count(keys.context);
  config.norm = family.norm;
  config.norm_eps = json_get<float>(json, keys.norm_eps, source);
  config.learned_positions = !family.rotary;
  layers.attention.rotary = family.rotary;
  layers.attention.qk_norm = family.qk_norm;
  layers.attention.output_gate = family.output_gate;
  layers.mlp.gated = family.gated;
  const auto flag = [&](const char* key) {
    return key != nullptr && json_get_or<bool>(json, key, false, source);
  };
  layers.attention.qkv_bias = family.qkv_bias || flag(family.attention_bias_key);
  layers.attention.output_bias = family.output_bias || flag(family.attention_bias_key);
  layers.mlp.bias = family.mlp_bias || flag(family.mlp_bias_key);
  config.tied = json_get_or<bool>(json, "tie_word_embeddings", family.tied_by_default, source);
  if (family.rotary) read_rope(json, family, config, source);
  layers.attention.temperature = read_temperature(json, family, source);
  const auto spell = [&](std::string_view name) { return config_key(keys, name); };
  check_layer_count(layers.count, source, spell);
  read_windows(json, family, layers, source);
  layers.attention.rotary_dims = rotary_dims_of(json, family, config.head_dim, source);
  config.layers = layers.layers();
  read_delta_layers(json, family, source, config);
  read_experts(json, family, source, config);
  read_muse(json, family, source, config);
  check_config(config, source, spell);
  return config;
}

}  // namespace leq
