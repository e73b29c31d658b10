// Converts config.json of Hugging Face checkpoints (transformers 4 or 5) to ModelConfig: the text
// model of a wrapper, transformers' rules for keys that are absent, null or given twice, refusals
// of keys that change the function in a way that leq does not support, layers.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/hf_import.h"
#include "convert/quantization_config.h"
#include "families/family.h"

namespace leq {
namespace {

constexpr const char* kOriginal = "original_max_position_embeddings";

// A multiplier or cap that changes the model's function. `neutral`: the value that has no
// effect.
struct ChangingKey {
  std::string_view key;
  double neutral;
};
constexpr std::array<ChangingKey, 12> kChangingKeys = {{{"attention_multiplier", 0},
                                                        {"logits_scaling", 1},
                                                        {"embedding_multiplier", 1},
                                                        {"residual_multiplier", 1},
                                                        {"llama_4_scaling_beta", 0},
                                                        {"attn_logit_softcapping", 0},
                                                        {"final_logit_softcapping", 0},
                                                        {"query_pre_attn_scalar", 0},
                                                        {"attention_chunk_size", 0},
                                                        {"scale_emb", 1},
                                                        {"scale_depth", 0},
                                                        {"mup_multiplier", 1}}};

// Known keys of rope parameters besides rope_scaling_fields(): those that are read, and those
// without effect on text models.
constexpr std::array<std::string_view, 14> kRopeKeys = {"rope_type",
                                                        "type",
                                                        "rope_theta",
                                                        "truncate",
                                                        "finetuned",
                                                        kOriginal,
                                                        "mrope_section",
                                                        "max_position_embeddings",
                                                        "mrope_interleaved",
                                                        "partial_rotary_factor",
                                                        "llama_4_scaling_beta",
                                                        "short_factor",
                                                        "long_factor",
                                                        "name"};

// `table`: what precedes the keys of this object in Family::computes.
void refuse_changing_keys(const Json& object, const Family& family, const std::string& table,
                          std::string_view source) {
  for (const ChangingKey& key : kChangingKeys) {
    const std::string name = table + std::string(key.key);
    if (object.find_given(key.key) == nullptr) continue;
    if (std::ranges::find(family.computes, name) != family.computes.end()) continue;
    const Json& value = object[key.key];
    const bool neutral = value.is_number() && value.get<double>() == key.neutral;
    require(neutral, source, ": ", key.key, " = ", printable(value.dump()), " is not supported");
  }
}

std::string kind_of(const Json& rope) {
  for (const char* key : {"rope_type", "type"}) {
    if (rope.find_given(key) != nullptr && rope[key].is_string()) return rope[key].text();
  }
  return "default";
}

// Whether two objects have the same type and agree in all keys that both contain.
bool ropes_agree(const Json& a, const Json& b) {
  if (kind_of(a) != kind_of(b)) return false;
  for (const auto& [key, value] : a.items()) {
    if (key == "type" || key == "rope_type" || b.find_given(key) == nullptr || value.is_null())
      continue;
    if (b[key] != value) return false;
  }
  return true;
}

void refuse_unknown_rope_keys(const Json& rope, std::string_view source) {
  for (const auto& [key, value] : rope.items()) {
    if (value.is_null() || value.is_object()) continue;
    const auto same = [&key = key](const auto& field) { return key == field.name; };
    require(std::ranges::find(kRopeKeys, std::string_view(key)) != kRopeKeys.end() ||
                std::ranges::any_of(rope_scaling_fields(), same),
            source, ": rope parameter ", printable(key), " = ", printable(value.dump()),
            " is not known");
  }
}

// Whether any layer has the kind `kind`; true if the config lists no layer types.
bool is_used(const Json& config, const std::string& kind) {
  if (config.find_given("layer_types") == nullptr || !config["layer_types"].is_array()) return true;
  return std::ranges::any_of(config["layer_types"], [&](const Json& type) { return type == kind; });
}

void check_rope(const Json& rope, const Family* family, std::string_view source) {
  if (family == nullptr || !rope.is_object()) return;
  refuse_changing_keys(rope, *family, "rope_parameters.", source);
  refuse_unknown_rope_keys(rope, source);
}

// Whether rope parameters are objects for one kind of layers each.
bool is_nested(const Json& rope) {
  return rope.is_object() && std::ranges::any_of(rope.members(), [](const auto& entry) {
           return entry.second.is_object();
         });
}

// Like transformers, puts the original context that is beside a single table into the table.
void move_original_context(Json& config) {
  if (config.find_given(kOriginal) == nullptr) return;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* rope = config.find_given(key);
    if (rope == nullptr || !rope->is_object() || is_nested(*rope)) continue;
    config[key][kOriginal] = config[kOriginal];
  }
}

// Merges rope parameters given per layer kind into one object if all kinds in use agree. Otherwise
// layer_types must say which layers are of which kind.
Json common_rope(const Json& config, const Family* family, std::string_view source) {
  const Json& rope = config["rope_parameters"];
  if (!is_nested(rope)) {
    check_rope(rope, family, source);
    return rope;
  }
  Json used = Json::object();
  bool alike = true;
  for (const auto& [key, value] : rope.items()) {
    if (value.is_null()) continue;
    require(value.is_object(), source, ": rope_parameters: ", printable(key),
            " is not an object, but other entries are objects for one layer type each");
    if (!is_used(config, key)) continue;
    check_rope(value, family, source);
    used[key] = value;
    alike = alike && value == used.members().front().second;
  }
  require(!used.empty(), source, ": rope_parameters: none is of a kind that layer_types has");
  if (alike) return used.members().front().second;
  require(config.find_given("layer_types") != nullptr, source, ": rope_parameters of ",
          printable(used.members().front().first), " and other kinds of layers differ, and ",
          "layer_types is missing");
  return used;
}

// Sets what transformers sets where a key is absent, and where some are null.
void set_defaults(const Family& family, Json& config, std::string_view source) {
  // A null head_dim means hidden size / heads; an absent key means the family's default.
  const Json* head = config.find("head_dim");
  if (head != config.end() && head->is_null() && config.find_given("hidden_size") != nullptr &&
      config.find_given("num_attention_heads") != nullptr &&
      config["num_attention_heads"].is_number_integer() &&
      config["hidden_size"].is_number_integer()) {
    const auto heads = config["num_attention_heads"].get<std::int64_t>();
    const auto width = config["hidden_size"].get<std::int64_t>();
    if (heads > 0 && width % heads == 0) config["head_dim"] = width / heads;
  }
  if (!family.defaults.empty()) {
    const Json defaults = parse_json(family.defaults, source);
    for (const auto& [key, value] : defaults.items()) {
      const bool older = key == "rope_parameters" && config.find_given("rope_scaling") != nullptr;
      if (config.find_given(key) == nullptr && !older) config[key] = value;
    }
  }
  if (family.complete != nullptr) family.complete(config, source);
}

// The config with transformers' defaults for absent and null keys, and the rope settings of the
// kinds of layers merged into one object, "rope_parameters", if they are equal.
Json complete_hf_config(Json config, std::string_view source) {
  if (!config.is_object()) return config;
  const Json* named = config.find("model_type");
  // Keys are checked only for known families, because others may use them with another meaning.
  const Family* family =
      named != config.end() && named->is_string() ? find_family(named->text()) : nullptr;
  if (family != nullptr) {
    refuse_changing_keys(config, *family, "", source);
    set_defaults(*family, config, source);
  }
  move_original_context(config);
  const Json* scaling = config.find_given("rope_scaling");
  if (scaling != nullptr) check_rope(*scaling, family, source);
  if (config.find_given("rope_parameters") != nullptr) {
    const Json rope = common_rope(config, family, source);
    require(!rope.is_object() || scaling == nullptr || !scaling->is_object() ||
                ropes_agree(*scaling, rope),
            source, ": rope_scaling and rope_parameters contradict: ",
            printable(scaling == nullptr ? "" : scaling->dump()), " and ", printable(rope.dump()),
            "; remove one of them");
    config["rope_parameters"] = rope;
  }
  return config;
}

// Keys of a wrapper that apply to the text model; its end tokens, for chats, take precedence.
constexpr std::array<std::string_view, 7> kCommonKeys = {
    "quantization_config", "eos_token_id", "bos_token_id",       "dtype",
    "torch_dtype",         "pad_token_id", "tie_word_embeddings"};

// The default text model type of a wrapper whose text_config names none.
struct DefaultText {
  std::string_view wrapper, text;
};
constexpr std::array<DefaultText, 8> kDefaultTexts = {{{"mistral3", "mistral"},
                                                       {"llava", "llama"},
                                                       {"qwen3_5", "qwen3_5_text"},
                                                       {"qwen3_5_moe", "qwen3_5_moe_text"},
                                                       {"muse_glimmer", "muse_glimmer_text"},
                                                       {"gemma3", "gemma3_text"},
                                                       {"gemma4", "gemma4_text"},
                                                       {"gemma4_unified", "gemma4_unified_text"}}};

struct NotRun {
  std::string_view model_type, what;
};
constexpr std::array<NotRun, 15> kNotRun = {{
    {"mistral4", "Mistral Small 4: multi-head latent attention and a mixture of experts"},
    {"mistral_large4", "Mistral Large 4: multi-head latent attention and a mixture of experts"},
    {"llama4", "Llama 4: a mixture of experts, attention in chunks"},
    {"llama4_text", "Llama 4: a mixture of experts, attention in chunks"},
    {"mllama", "Llama 3.2 Vision: layers that attend to images"},
    {"qwen4_exp", "Qwen 3.8 Flash: hyper-connections, n-gram embeddings, indexed attention"},
    {"qwen4_exp_text", "Qwen 3.8 Flash: hyper-connections, n-gram embeddings, indexed attention"},
    {"qwen2_moe", "Qwen 1.5: a mixture of experts"},
    {"ministral", "Ministral 8B of 2024: windows by kinds of layers"},
    {"deepseek_v2", "DeepSeek V2: multi-head latent attention and a mixture of experts"},
    {"deepseek_v3", "DeepSeek V3: multi-head latent attention and a mixture of experts"},
    {"gemma2", "Gemma 2: capped attention scores"},
    {"glm4", "GLM 4: RoPE in pairs of neighbours"},
    {"olmo2", "OLMo 2: no norms before its sublayers, norms of q and k over all heads"},
    {"cohere2", "Command R7B: attention and MLP side by side"},
}};

bool writes_text(std::string_view architecture) {
  return architecture.ends_with("ForConditionalGeneration") ||
         architecture.ends_with("ForCausalLM");
}

void check_architectures(const Json& wrapper, std::string_view source) {
  if (wrapper.find_given("architectures") == nullptr) return;
  const Json& names = wrapper["architectures"];
  require(names.is_array(), source, ": architectures: expected a list of names");
  for (const Json& name : names) {
    require(name.is_string() && writes_text(name.text()), source, ": architecture ",
            printable(name.dump()), " is not supported; expected one that writes text");
  }
}

// The name of the model without its head, as embedding models are often stored:
// "Qwen3ForCausalLM" -> "Qwen3Model".
std::string without_head(std::string_view architecture) {
  constexpr std::string_view kEnd = "ForCausalLM";
  if (!architecture.ends_with(kEnd)) return std::string(architecture);
  return std::string(architecture.substr(0, architecture.size() - kEnd.size())) + "Model";
}

// What a model_type is that leq recognizes but does not support; empty if it is unknown.
std::string_view known_but_not_run(std::string_view model_type) {
  const auto* found = std::ranges::find(kNotRun, model_type, &NotRun::model_type);
  return found == kNotRun.end() ? std::string_view() : found->what;
}

// Whether the object has the key; false if `key` is null, because the family has no such key.
bool has(const Json& json, const char* key) {
  return key != nullptr && json.find_given(key) != nullptr;
}

std::int64_t expert_count(const Json& json, const ExpertKeys& keys, std::string_view source) {
  const char* key = keys.experts;
  // transformers accepts both names in all families.
  for (const char* other : {"num_experts", "num_local_experts"}) {
    if (!has(json, key) && has(json, other)) key = other;
  }
  const auto count = json_get<std::int64_t>(json, key, source);
  require(count >= 0, source, ": ", key, " = ", count, ": expected at least 0");
  return count;
}

std::vector<bool> sparse_layers(const Json& json, const ExpertKeys& keys, std::int64_t layers,
                                std::string_view source) {
  const auto step = keys.sparse_step == nullptr
                        ? 1
                        : json_get_or<std::int64_t>(json, keys.sparse_step, 1, source);
  require(step >= 1, source, ": ", keys.sparse_step == nullptr ? "" : keys.sparse_step, " = ", step,
          ": expected at least 1");
  std::vector<bool> sparse;
  for (std::int64_t i = 0; i < layers; ++i) sparse.push_back((i + 1) % step == 0);
  if (!has(json, keys.dense_layers)) return sparse;
  const Json& dense = json[keys.dense_layers];
  require(dense.is_array(), source, ": ", keys.dense_layers, ": expected a list of layers");
  for (const auto& entry : dense) {
    require(entry.is_number_integer(), source, ": ", keys.dense_layers,
            ": expected a list of layers");
    const auto layer = entry.get<std::int64_t>();
    if (layer >= 0 && layer < layers) sparse[static_cast<std::size_t>(layer)] = false;
  }
  return sparse;
}

// Replaces the dense MLP by experts in the layers that have them.
void read_experts(const Json& json, const Family& family, std::string_view source,
                  ModelConfig& config) {
  if (!family.experts) return;
  const ExpertKeys& keys = *family.experts;
  ExpertsMlpConfig experts;
  experts.experts = expert_count(json, keys, source);
  if (experts.experts == 0) return;
  experts.active = json_get<std::int64_t>(json, keys.active, source);
  experts.hidden = json_get<std::int64_t>(json, keys.hidden, source);
  experts.normalized = keys.normalized == nullptr ||
                       json_get_or<bool>(json, keys.normalized, keys.normalized_if_absent, source);
  if (keys.shared_hidden != nullptr) {
    experts.shared_hidden = json_get_or<std::int64_t>(json, keys.shared_hidden, 0, source);
  }
  const auto sparse = sparse_layers(json, keys, config.layer_count(), source);
  for (std::size_t i = 0; i < sparse.size(); ++i) {
    if (!sparse[i]) continue;
    require(!config.layers[i].dense_mlp()->bias, source, ": biases of experts are not supported");
    config.layers[i].mlp = experts;
  }
}

std::vector<bool> recurrent_layers(const Json& json, const DeltaKeys& keys, std::int64_t layers,
                                   std::string_view source) {
  std::vector<bool> recurrent;
  if (json.find_given("layer_types") != nullptr) {
    for (const Json& type : json["layer_types"]) recurrent.push_back(type == "linear_attention");
    return recurrent;
  }
  const auto interval = json_get_or<std::int64_t>(json, keys.interval, 4, source);
  require(interval >= 1, source, ": ", keys.interval, " = ", interval, ": expected at least 1");
  for (std::int64_t i = 0; i < layers; ++i) recurrent.push_back((i + 1) % interval != 0);
  return recurrent;
}

// Sets Gated DeltaNet as the mixer of layers without attention.
void read_delta_layers(const Json& json, const Family& family, std::string_view source,
                       ModelConfig& config) {
  if (family.delta == nullptr) return;
  const DeltaKeys& keys = *family.delta;
  const auto recurrent = recurrent_layers(json, keys, config.layer_count(), source);
  DeltaNetConfig delta;
  delta.key_heads = json_get<std::int64_t>(json, keys.key_heads, source);
  delta.value_heads = json_get<std::int64_t>(json, keys.value_heads, source);
  delta.key_dim = json_get<std::int64_t>(json, keys.key_dim, source);
  delta.value_dim = json_get<std::int64_t>(json, keys.value_dim, source);
  delta.conv_taps = json_get_or<std::int64_t>(json, keys.taps, 4, source);
  for (std::size_t i = 0; i < recurrent.size(); ++i) {
    if (recurrent[i]) config.layers[i].mixer = delta;
  }
}

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
    const bool known = std::ranges::any_of(family->architectures, [&](std::string_view one) {
      return text == one || text == without_head(one);
    });
    require(known, source, ": architecture \"", printable(text), "\" is not supported; expected ",
            family->architectures.front());
  }
  return *family;
}

void refuse_partial_rotary(const Json& json, std::string_view source) {
  const auto factor = json_get_or<double>(json, "partial_rotary_factor", 1.0, source);
  require(factor == 1.0, source, ": partial_rotary_factor = ", factor, " is not supported");
}

// Refuses keys that change the model's function in a way that leq does not support.
void refuse_unsupported(const Json& json, const Family& family, std::string_view source) {
  read_quantization_config(json, source);
  for (const Family::Fixed& fixed : family.fixed) {
    require(json_get_or<bool>(json, fixed.key, fixed.value, source) == fixed.value, source, ": ",
            fixed.key, " = ", fixed.value ? "false" : "true", " is not supported");
  }
  if (!family.partial_rotary) refuse_partial_rotary(json, source);
}

Activation activation_of(const Json& json, const Family& family, std::string_view source) {
  const auto name = json_get_or<std::string>(json, family.keys.activation,
                                             std::string(family.activations.front()), source);
  const auto& known = family.activations;
  require(std::ranges::find(known, name) != known.end(), source, ": ", family.keys.activation,
          " \"", printable(name), "\" is not supported; expected ", known.front());
  return name.starts_with("gelu") ? Activation::gelu_tanh : Activation::silu;
}

RopeScaling scaling_of(const Json& json, std::int64_t context, std::string_view source) {
  RopeScaling scaling;
  std::string type = json_get_or<std::string>(json, "rope_type", "", source);
  if (type.empty()) type = json_get_or<std::string>(json, "type", "default", source);
  // For text, the three position ids of M-RoPE are equal, so M-RoPE is plain RoPE.
  if (type == "default" || type == "mrope") return scaling;
  const auto kind = parse_rope_scaling(type);
  require(kind && *kind != RopeScalingKind::none, source, ": rope_scaling type ", printable(type),
          " is not supported; supported are linear, dynamic, llama3, yarn, longrope, proportional");
  scaling.kind = *kind;
  if (scaling.kind == RopeScalingKind::proportional) {
    scaling.factor = json_get_or<double>(json, "factor", 1, source);
    scaling.rotated = json_get_or<double>(json, "partial_rotary_factor", 1, source);
    return scaling;
  }
  // For other kinds transformers ignores the key; dynamic scaling takes the model's own context.
  const bool is_longrope = scaling.kind == RopeScalingKind::longrope;
  if (scaling.kind == RopeScalingKind::llama3 || scaling.kind == RopeScalingKind::yarn ||
      is_longrope) {
    scaling.original_context = json_get_or<std::int64_t>(json, kOriginal, context, source);
  }
  if (is_longrope) {
    read_rope_factors(json, source, scaling);
    const auto original = std::max<std::int64_t>(1, scaling.original_context);
    scaling.factor = static_cast<double>(context) / static_cast<double>(original);
  } else {
    scaling.factor = json_get<double>(json, "factor", source);
  }
  for (const RopeScalingField& field : rope_scaling_fields()) {
    scaling.*field.member = json_get_or<double>(json, field.name, scaling.*field.member, source);
  }
  scaling.truncate = json_get_or<bool>(json, "truncate", true, source);
  return scaling;
}

// AttentionConfig::rope of `parameters`, which is rope_scaling or rope_parameters, or empty. What
// it does not have may be at the top level of `json`.
RopeConfig rope_of(const Json& json, const Json& parameters, const Family& family,
                   const ModelConfig& config, std::string_view source) {
  constexpr const char* kFactor = "partial_rotary_factor";
  RopeConfig rope;
  rope.theta = json_get_or<double>(json, "rope_theta", rope.theta, source);
  rope.theta = json_get_or<double>(parameters, "rope_theta", rope.theta, source);
  rope.scaling = scaling_of(parameters, config.context, source);
  if (rope.scaling.kind == RopeScalingKind::proportional) return rope;
  if (!family.partial_rotary) {
    refuse_partial_rotary(parameters, source);
    return rope;
  }
  double factor = json_get_or<double>(json, kFactor, *family.partial_rotary, source);
  factor = json_get_or<double>(parameters, kFactor, factor, source);
  require(std::isfinite(factor) && factor > 0 && factor <= 1, source, ": ", kFactor, " = ", factor,
          ": expected above 0, at most 1");
  const auto dims = static_cast<std::int64_t>(static_cast<double>(config.head_dim) * factor);
  require(dims >= 2 && dims % 2 == 0 && dims <= 1 << 30, source, ": ", kFactor, " = ", factor,
          " of heads of ", config.head_dim, ": expected an even count of numbers");
  rope.dims = dims == config.head_dim ? 0 : static_cast<std::int32_t>(dims);
  return rope;
}

// Reads rope_theta and rope_scaling (transformers 4) or rope_parameters (transformers 5), which may
// have an object for each kind of layer.
void read_rope(const Json& json, const Family& family, ModelConfig& config,
               std::string_view source) {
  const Json* parameters = json.find_given("rope_parameters");
  if (parameters == nullptr) parameters = json.find_given("rope_scaling");
  const Json none = Json::object();
  if (parameters == nullptr) parameters = &none;
  require(parameters->is_object(), source, ": rope_scaling: expected an object");
  const bool nested = is_nested(*parameters);
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const Json* own = parameters;
    if (nested) {
      const Json* types = json.find_given("layer_types");
      const std::string kind = types == nullptr ? "" : (*types)[i].text();
      own = parameters->find_given(kind);
      require(own != nullptr && own->is_object(), source, ": rope parameters of layers of kind \"",
              printable(kind), "\" are missing");
    }
    config.layers[i].attention()->rope = rope_of(json, *own, family, config, source);
  }
}

// The attention window of layer `layer` by the family's own rule.
std::int32_t ruled_window(const Json& json, WindowRule rule, std::int64_t layer,
                          std::string_view source) {
  const std::int64_t default_window = rule == WindowRule::named ? 0 : 4096;
  if (rule == WindowRule::none) return 0;
  const auto key = json.find("sliding_window");
  const auto window = key == json.end() ? default_window
                      : key->is_null()  ? 0
                                        : json_get<std::int64_t>(json, "sliding_window", source);
  require(window >= 0 && window <= 1 << 30, source, ": sliding_window = ", window);
  if (rule == WindowRule::all_layers || rule == WindowRule::named) {
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
    std::int32_t window = ruled_window(json, family.windows, i, source);
    if (types != nullptr) {
      const Json& name = (*types)[static_cast<std::size_t>(i)];
      const bool recurrent =
          (name == "linear_attention" && family.delta != nullptr) ||
          (!family.own_mixers.empty() && name.is_string() && name.text() == family.own_mixers);
      require(name == "full_attention" || name == "sliding_attention" || recurrent, source,
              ": layer_types[", i, "] = ", printable(name.dump()), " is not supported");
      window =
          name == "full_attention" || recurrent
              ? 0
              : static_cast<std::int32_t>(json_whole(json, "sliding_window", 0, 1 << 30, source));
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

Json text_config_of(Json config, std::string_view source) {
  if (!config.is_object() || config.find_given("text_config") == nullptr) return config;
  Json text = config["text_config"];
  require(text.is_object(), source, ": text_config: expected an object, found ", text.type_name());
  check_architectures(config, source);
  for (const std::string_view key : kCommonKeys) {
    if (config.find_given(key) != nullptr) text[std::string(key)] = config[key];
  }
  if (text.find_given("model_type") == nullptr && config.find_given("model_type") != nullptr &&
      config["model_type"].is_string()) {
    const auto* found = std::ranges::find(
        kDefaultTexts, std::string_view(config["model_type"].text()), &DefaultText::wrapper);
    text["model_type"] =
        found == kDefaultTexts.end() ? config["model_type"].text() : std::string(found->text);
  }
  // Removed, because `architectures` of a text_config does not describe the checkpoint.
  text["architectures"] = nullptr;
  return text;
}

void read_constants(const Json& json, std::string_view source, Family& family) {
  for (TensorRule& rule : family.tensors) {
    const auto read = [&](const char* key, float& number) {
      if (key == nullptr) return;
      number = json_get_or<float>(json, key, number, source);
      require(std::isfinite(number) && number > 0 && number <= 1e6f, source, ": ", key, " = ",
              number, ": expected above 0, at most 1e6");
    };
    read(rule.transform.constant_key, rule.transform.constant);
    read(rule.transform.divisor_key, rule.transform.divisor);
  }
}

ModelConfig import_hf_config(std::string_view json_text, std::string_view source) {
  const Json json =
      complete_hf_config(text_config_of(parse_json(json_text, source), source), source);
  require(json.is_object(), source, ": expected a JSON object");
  const Family& family = family_of(json, source);
  refuse_unsupported(json, family, source);
  const ConfigKeys& keys = family.keys;
  constexpr std::int64_t kLargest = std::int64_t{1} << 40;  // twice or four times is no overflow
  const auto count = [&](const char* key) {
    return json_whole(json, key, -kLargest, kLargest, source);
  };
  const auto count_or = [&](const char* key, std::int64_t fallback) {
    return has(json, key) ? count(key) : fallback;
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
  if (!has(json, keys.head_dim)) {
    require(config.width % config.heads == 0, source, ": width ", config.width,
            " is no multiple of ", config.heads, " heads, and head_dim is not given");
  }
  config.head_dim = count_or(keys.head_dim, config.width / config.heads);
  layers.mlp.hidden =
      family.hidden_is_optional ? count_or(keys.hidden, 4 * config.width) : count(keys.hidden);
  config.vocab = count(keys.vocab);
  config.context = count(keys.context);
  config.norm = family.norm;
  config.norm_eps = json_get_or<float>(json, keys.norm_eps, 1e-6f, source);
  config.learned_positions = !family.rotary;
  layers.attention.rope.reset();
  layers.attention.qk_norm = family.qk_norm;
  layers.attention.output_gate = family.output_gate;
  layers.mlp.gated = family.gated;
  layers.mlp.activation = activation_of(json, family, source);
  const auto flag = [&](const char* key) {
    return key != nullptr && json_get_or<bool>(json, key, false, source);
  };
  layers.attention.qkv_bias = family.qkv_bias || flag(family.attention_bias_key);
  layers.attention.output_bias = family.output_bias || flag(family.attention_bias_key);
  layers.mlp.bias = family.mlp_bias || flag(family.mlp_bias_key);
  config.tied = json_get_or<bool>(json, "tie_word_embeddings", family.tied_by_default, source);
  const auto spell = [&](std::string_view name) { return config_key(keys, name); };
  check_layer_count(layers.count, source, spell);
  read_windows(json, family, layers, source);
  config.layers = layers.layers();
  if (family.rotary) read_rope(json, family, config, source);
  read_delta_layers(json, family, source, config);
  read_experts(json, family, source, config);
  if (family.finish != nullptr) family.finish(json, source, config);
  check_config(config, source, spell);
  return config;
}

}  // namespace leq
