#include "export/hf_config.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

// The common configuration of all layers of each kind, because transformers allows one per kind.
struct LayerKinds {
  AttentionConfig attention = {};
  std::optional<DeltaNetConfig> delta = {};
  DenseMlpConfig mlp = {};
  std::optional<ExpertsMlpConfig> experts = {};
  std::int32_t window = 0;  // window of the layers that have one
  bool all_windows = true;  // every layer has the window
};

LayerKinds common_layers(const ModelConfig& config) {
  LayerKinds common;
  for (const LayerConfig& layer : config.layers) {
    if (layer.attention() != nullptr) common.attention = *layer.attention();
    if (layer.delta_net() != nullptr) common.delta = *layer.delta_net();
    if (layer.dense_mlp() != nullptr) common.mlp = *layer.dense_mlp();
    if (layer.experts_mlp() != nullptr) common.experts = *layer.experts_mlp();
  }
  common.attention.window = 0;
  for (LayerConfig layer : config.layers) {
    if (layer.attention() != nullptr) layer.attention()->window = 0;
    const bool alike = (layer.attention() == nullptr || *layer.attention() == common.attention) &&
                       (layer.delta_net() == nullptr || *layer.delta_net() == common.delta) &&
                       (layer.dense_mlp() == nullptr || *layer.dense_mlp() == common.mlp) &&
                       (layer.experts_mlp() == nullptr || *layer.experts_mlp() == common.experts);
    require(alike, config.family,
            ": layers of one kind that differ in more than their windows have no class in "
            "transformers");
  }
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    const std::int32_t window = config.window(layer);
    require(window == 0 || common.window == 0 || window == common.window, "layer ", layer,
            ": window ", window, " where another layer has ", common.window);
    common.window = std::max(common.window, window);
  }
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    if (config.window(layer) != common.window) common.all_windows = false;
  }
  return common;
}

// The family with this name (not model_type); throws Error if there is none.
const Family& named_family(const std::string& name) {
  const auto found =
      std::ranges::find(families(), name, [](const Family* family) { return family->name; });
  require(found != families().end(), "family ", printable(name), " is not known");
  return **found;
}

const char* model_type_of(const ModelConfig& config, const LayerKinds& common) {
  if (!common.mlp.gated) return "gpt2";
  if (common.attention.qk_norm) return "qwen3";
  const bool q_alone = common.attention.qkv_bias && !common.attention.output_bias;
  if (q_alone) return "qwen2";
  if (common.window > 0 && common.all_windows) return "mistral";
  require(common.window == 0, config.family, ": windows in some layers alone");
  return "llama";
}

void check_biases(const Family& family, const LayerKinds& common) {
  const bool qkv = common.attention.qkv_bias, output = common.attention.output_bias;
  const auto refuse = [&](bool wrong, const char* what) {
    require(!wrong, family.name, ": ", what,
            " that this file has and the class of transformers has not; quantize by a method that "
            "adds no biases");
  };
  if (family.attention_bias_key == nullptr) {
    refuse(qkv != family.qkv_bias || output != family.output_bias, "biases of attention");
  } else {
    refuse(qkv != output, "biases of some linears of attention alone");
  }
  if (family.mlp_bias_key == nullptr) {
    refuse(common.mlp.bias != family.mlp_bias, "biases of the MLP");
  }
}

Json rope_parameters(const ModelConfig& config, const LayerKinds& common) {
  const RopeScaling& scaling = config.rope_scaling;
  Json json = {{"rope_theta", config.rope_theta}};
  if (common.attention.rotary_dims > 0) {
    json["partial_rotary_factor"] =
        static_cast<double>(common.attention.rotary_dims) / static_cast<double>(config.head_dim);
  }
  if (common.attention.temperature.period > 0) {
    json["llama_4_scaling_beta"] = common.attention.temperature.beta;
    json["original_max_position_embeddings"] = common.attention.temperature.period;
  }
  if (scaling.kind == RopeScalingKind::none) {
    json["rope_type"] = "default";
    return json;
  }
  json["rope_type"] = rope_scaling_name(scaling.kind);
  json["factor"] = scaling.factor;
  if (scaling.original_context > 0) {
    json["original_max_position_embeddings"] = scaling.original_context;
  }
  if (scaling.kind == RopeScalingKind::llama3) {
    json["low_freq_factor"] = scaling.low_freq_factor;
    json["high_freq_factor"] = scaling.high_freq_factor;
  }
  if (scaling.kind != RopeScalingKind::yarn) return json;
  json["beta_fast"] = scaling.beta_fast;
  json["beta_slow"] = scaling.beta_slow;
  json["truncate"] = scaling.truncate;
  if (scaling.attention_factor > 0) json["attention_factor"] = scaling.attention_factor;
  if (scaling.mscale > 0) json["mscale"] = scaling.mscale;
  if (scaling.mscale_all_dim > 0) json["mscale_all_dim"] = scaling.mscale_all_dim;
  return json;
}

void add_windows(const ModelConfig& config, const Family& family, const LayerKinds& common,
                 Json& json) {
  if (family.windows == WindowRule::none) return;
  json["sliding_window"] = common.window > 0 ? Json(common.window) : Json();
  if (family.windows == WindowRule::all_layers) return;
  json["use_sliding_window"] = common.window > 0;
  Json types = Json::array();
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    types.push_back(config.window(layer) > 0 ? "sliding_attention" : "full_attention");
  }
  json["layer_types"] = types;
}

void add_delta_layers(const ModelConfig& config, const DeltaKeys& keys, const DeltaNetConfig& delta,
                      Json& json) {
  json[keys.key_heads] = delta.key_heads;
  json[keys.value_heads] = delta.value_heads;
  json[keys.key_dim] = delta.key_dim;
  json[keys.value_dim] = delta.value_dim;
  json[keys.taps] = delta.conv_taps;
  Json types = Json::array();
  for (const LayerConfig& layer : config.layers) {
    types.push_back(layer.delta_net() != nullptr ? "linear_attention" : "full_attention");
  }
  json["layer_types"] = types;
}

void add_experts(const ModelConfig& config, const ExpertKeys& keys, const ExpertsMlpConfig& experts,
                 Json& json) {
  json[keys.experts] = experts.experts;
  json[keys.active] = experts.active;
  json[keys.hidden] = experts.hidden;
  if (keys.normalized != nullptr) json[keys.normalized] = experts.normalized;
  if (keys.shared_hidden != nullptr) json[keys.shared_hidden] = experts.shared_hidden;
  Json dense = Json::array();
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    if (config.layer(layer).dense_mlp() != nullptr) dense.push_back(layer);
  }
  require(dense.empty() || keys.dense_layers != nullptr, config.family,
          ": some layers have no experts");
  if (keys.sparse_step != nullptr) json[keys.sparse_step] = 1;
  if (keys.dense_layers != nullptr) json[keys.dense_layers] = dense;
}

void add_special_tokens(const Model& model, Json& json) {
  if (!model.has_tokenizer()) return;
  const std::vector<Token> ends = model.end_tokens();
  if (model.tokenizer().bos() >= 0) json["bos_token_id"] = model.tokenizer().bos();
  if (!ends.empty()) json["eos_token_id"] = ends.size() == 1 ? Json(ends.front()) : Json(ends);
}

}  // namespace

const Family& hf_family_of(const ModelConfig& config) {
  require(config.post_norm_eps == 0 && config.logit_cap.cap == 0, config.family,
          ": norms behind sublayers and capped logits are not written back");
  const LayerKinds common = common_layers(config);
  const bool own_layers = common.delta || common.experts || common.attention.temperature.period > 0;
  const Family& family =
      own_layers ? named_family(config.family) : *find_family(model_type_of(config, common));
  check_biases(family, common);
  return family;
}

Json hf_config(const Model& model, const Family& family) {
  const ModelConfig& config = model.config();
  const LayerKinds common = common_layers(config);
  const ConfigKeys& keys = family.keys;
  Json json = {{"architectures", Json::array({family.architectures.front()})},
               {"model_type", family.model_type},
               {"tie_word_embeddings", config.tied},
               {"dtype", "float32"},
               {"torch_dtype", "float32"}};
  const auto add = [&](const char* key, const Json& value) {
    if (key != nullptr) json[key] = value;
  };
  add(keys.width, config.width);
  add(keys.layers, config.layer_count());
  add(keys.heads, config.heads);
  add(keys.kv_heads, config.kv_heads);
  add(keys.head_dim, config.head_dim);
  if (common.mlp.hidden > 0) add(keys.hidden, common.mlp.hidden);
  add(keys.vocab, config.vocab);
  add(keys.context, config.context);
  add(keys.norm_eps, config.norm_eps);
  add(keys.activation, family.activations.front());
  add(family.attention_bias_key, common.attention.qkv_bias);
  add(family.mlp_bias_key, common.mlp.bias);
  if (family.rotary) {
    json["rope_parameters"] = rope_parameters(config, common);
    json["rope_theta"] = config.rope_theta;
    if (config.rope_scaling.kind != RopeScalingKind::none) {
      json["rope_scaling"] = rope_parameters(config, common);
    }
  }
  add_windows(config, family, common, json);
  if (family.delta != nullptr && common.delta) {
    add_delta_layers(config, *family.delta, *common.delta, json);
  }
  if (family.experts && common.experts) {
    add_experts(config, *family.experts, *common.experts, json);
  }
  add_special_tokens(model, json);
  return json;
}

Json hf_generation_config(const Model& model) {
  const Json said = generation_to_json(model.generation());
  Json json = Json::object();
  for (const SamplingKnob& knob : kSamplingKnobs) {
    if (knob.config_key.empty() || !said.contains(knob.name)) continue;
    json[knob.config_key] = said.at(knob.name);
  }
  if (json.contains("temperature")) {
    const bool samples = json.at("temperature").get<double>() > 0;
    json["do_sample"] = samples;
    if (!samples) json.erase("temperature");
  }
  add_special_tokens(model, json);
  return json;
}

}  // namespace leq
