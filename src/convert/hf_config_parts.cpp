#include "convert/hf_config_parts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

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

struct DefaultContext {
  std::string_view model_type;
  std::int64_t positions;
};
constexpr std::array<DefaultContext, 12> kContexts = {{{"llama", 2048},
                                                       {"mistral", 131072},
                                                       {"mixtral", 131072},
                                                       {"ministral3", 262144},
                                                       {"qwen2", 32768},
                                                       {"qwen3", 32768},
                                                       {"qwen3_moe", 32768},
                                                       {"qwen3_next", 32768},
                                                       {"qwen3_5_text", 32768},
                                                       {"qwen3_5_moe_text", 32768},
                                                       {"muse_glimmer_text", 131072},
                                                       {"gpt2", 1024}}};

// Known keys of rope parameters: those that are read, and those without effect on text models.
constexpr std::array<std::string_view, 20> kRopeKeys = {"rope_type",
                                                        "type",
                                                        "rope_theta",
                                                        "factor",
                                                        "low_freq_factor",
                                                        "high_freq_factor",
                                                        "attention_factor",
                                                        "beta_fast",
                                                        "beta_slow",
                                                        "mscale",
                                                        "mscale_all_dim",
                                                        "truncate",
                                                        "finetuned",
                                                        "original_max_position_embeddings",
                                                        "mrope_section",
                                                        "max_position_embeddings",
                                                        "mrope_interleaved",
                                                        "partial_rotary_factor",
                                                        "llama_4_scaling_beta",
                                                        "name"};

// `read`: the key of this table that the family supports, which is therefore not refused.
void refuse_changing_keys(const Json& object, std::string_view read, std::string_view source) {
  for (const ChangingKey& key : kChangingKeys) {
    if (object.find_given(key.key) == nullptr || key.key == read) continue;
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

// Checks only supported types: other types may have other keys, and are refused later by
// name.
void refuse_unknown_rope_keys(const Json& rope, std::string_view source) {
  const std::string kind = kind_of(rope);
  if (kind == "longrope" || kind == "su") return;
  for (const auto& [key, value] : rope.items()) {
    if (value.is_null() || value.is_object()) continue;
    require(std::ranges::find(kRopeKeys, std::string_view(key)) != kRopeKeys.end(), source,
            ": rope parameter ", printable(key), " = ", printable(value.dump()), " is not known");
  }
}

// Whether any layer has the kind `kind`; true if the config lists no layer types.
bool is_used(const Json& config, const std::string& kind) {
  if (config.find_given("layer_types") == nullptr || !config["layer_types"].is_array()) return true;
  return std::ranges::any_of(config["layer_types"], [&](const Json& type) { return type == kind; });
}

// Merges rope parameters given per layer kind into one object if all kinds in use agree.
Json common_rope(const Json& config, std::string_view source) {
  const Json& rope = config["rope_parameters"];
  const bool nested =
      rope.is_object() && std::ranges::any_of(rope.members(), [](const auto& entry) {
        return entry.second.is_object();
      });
  if (!nested) return rope;
  const Json* first = nullptr;
  std::string name;
  for (const auto& [key, value] : rope.items()) {
    if (value.is_null()) continue;
    require(value.is_object(), source, ": rope_parameters: ", printable(key),
            " is not an object, but other entries are objects for one layer type each");
    if (!is_used(config, key)) continue;
    if (first == nullptr) {
      first = &value;
      name = key;
    }
    require(value == *first, source, ": rope_parameters of ", printable(name), " and ",
            printable(key), " differ, which is not supported");
  }
  require(first != nullptr, source, ": rope_parameters: none is of a kind that layer_types has");
  return *first;
}

// The default rope parameters of Ministral 3, used if its config has none.
Json ministral3_rope() {
  return {
      {"rope_type", "yarn"}, {"rope_theta", 1e6},     {"factor", 16.0},
      {"mscale", 1.0},       {"mscale_all_dim", 1.0}, {"llama_4_scaling_beta", 0.1},
      {"beta_fast", 32.0},   {"beta_slow", 1.0},      {"original_max_position_embeddings", 16384}};
}

Json checked_rope(const Json& config, bool known, std::string_view read, std::string_view source) {
  Json rope = common_rope(config, source);
  if (known && rope.is_object()) {
    refuse_changing_keys(rope, read, source);
    refuse_unknown_rope_keys(rope, source);
  }
  if (rope.is_object() && config.find_given("rope_scaling") != nullptr &&
      config["rope_scaling"].is_object()) {
    require(
        ropes_agree(config["rope_scaling"], rope), source,
        ": rope_scaling and rope_parameters contradict: ", printable(config["rope_scaling"].dump()),
        " and ", printable(rope.dump()), "; remove one of them");
  }
  return rope;
}

}  // namespace

Json complete_hf_config(Json config, std::string_view source) {
  if (!config.is_object()) return config;
  const Json* named = config.find("model_type");
  const std::string type = named != config.end() && named->is_string() ? named->text() : "";
  // Checked only for known families, because others may use these keys with another meaning.
  const bool known =
      std::ranges::find(kContexts, type, &DefaultContext::model_type) != kContexts.end();
  const std::string_view read = type == "ministral3" ? "llama_4_scaling_beta" : "";
  if (known) {
    const bool caps = type == "muse_glimmer_text";
    refuse_changing_keys(config, caps ? "final_logit_softcapping" : "", source);
  }
  const bool scales = config.find_given("rope_scaling") != nullptr;
  if (type == "ministral3" && !scales && config.find_given("rope_parameters") == nullptr) {
    config["rope_parameters"] = ministral3_rope();
  }
  if (known && scales && config["rope_scaling"].is_object()) {
    refuse_changing_keys(config["rope_scaling"], read, source);
    refuse_unknown_rope_keys(config["rope_scaling"], source);
  }
  if (config.find_given("rope_parameters") != nullptr) {
    config["rope_parameters"] = checked_rope(config, known, read, source);
  }
  const auto* context = std::ranges::find(kContexts, type, &DefaultContext::model_type);
  if (context != kContexts.end() && type != "gpt2" &&
      config.find_given("max_position_embeddings") == nullptr) {
    config["max_position_embeddings"] = context->positions;
  }
  // A null head_dim means hidden size / heads; an absent key means the family's default.
  const Json* head = config.find("head_dim");
  if (head != config.end() && head->is_null() && config.find_given("hidden_size") != nullptr &&
      config.find_given("num_attention_heads") != nullptr &&
      config["num_attention_heads"].is_number() && config["hidden_size"].is_number()) {
    const auto heads = config["num_attention_heads"].get<std::int64_t>();
    const auto width = config["hidden_size"].get<std::int64_t>();
    if (heads > 0 && width % heads == 0) config["head_dim"] = width / heads;
  }
  return config;
}

namespace {

// Keys of a wrapper that apply to the text model; its end tokens, for chats, take precedence.
constexpr std::array<std::string_view, 7> kCommonKeys = {
    "quantization_config", "eos_token_id", "bos_token_id",       "dtype",
    "torch_dtype",         "pad_token_id", "tie_word_embeddings"};

// The default text model type of a wrapper whose text_config names none.
struct DefaultText {
  std::string_view wrapper, text;
};
constexpr std::array<DefaultText, 5> kDefaultTexts = {{{"mistral3", "mistral"},
                                                       {"llava", "llama"},
                                                       {"qwen3_5", "qwen3_5_text"},
                                                       {"qwen3_5_moe", "qwen3_5_moe_text"},
                                                       {"muse_glimmer", "muse_glimmer_text"}}};

struct NotRun {
  std::string_view model_type, what;
};
constexpr std::array<NotRun, 23> kNotRun = {{
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
    {"gemma2", "Gemma 2: norms after its sublayers, capped scores and logits"},
    {"gemma3", "Gemma 3: norms after its sublayers, two tables of positions"},
    {"gemma3_text", "Gemma 3: norms after its sublayers, two tables of positions"},
    {"gemma4", "Gemma 4: norms after its sublayers, inputs for each layer"},
    {"gemma4_text", "Gemma 4: norms after its sublayers, inputs for each layer"},
    {"gpt_oss", "gpt-oss: a mixture of experts, attention sinks"},
    {"phi3", "Phi 3 and 4: q, k, v and gate, up in joined tensors, LongRoPE"},
    {"glm4", "GLM 4: norms after its sublayers, RoPE in pairs of neighbours"},
    {"granite", "Granite: multipliers of embeddings, scores, residuals and logits"},
    {"olmo2", "OLMo 2: norms after its sublayers"},
    {"cohere2", "Command R7B: attention and MLP side by side"},
    {"smollm3", "SmolLM 3: layers without positions"},
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

std::string_view known_but_not_run(std::string_view model_type) {
  const auto* found = std::ranges::find(kNotRun, model_type, &NotRun::model_type);
  return found == kNotRun.end() ? std::string_view() : found->what;
}

namespace {

// Whether the object has the key; false if `key` is null, because the family has no such key.
bool has(const Json& json, const char* key) {
  return key != nullptr && json.find_given(key) != nullptr;
}

std::int64_t expert_count(const Json& json, const ExpertKeys& keys, std::string_view source) {
  const bool other = !has(json, keys.experts) && has(json, keys.experts_too);
  const char* key = other ? keys.experts_too : keys.experts;
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

}  // namespace

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

namespace {

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

}  // namespace

std::int32_t rotary_dims_of(const Json& json, const Family& family, std::int64_t head_dim,
                            std::string_view source) {
  if (!family.reads_partial_rotary) return 0;
  constexpr const char* kFactor = "partial_rotary_factor";
  double factor = json_get_or<double>(json, kFactor, family.partial_rotary, source);
  if (json.find_given("rope_parameters") != nullptr && json["rope_parameters"].is_object()) {
    factor = json_get_or<double>(json["rope_parameters"], kFactor, factor, source);
  }
  require(std::isfinite(factor) && factor > 0 && factor <= 1, source, ": ", kFactor, " = ", factor,
          ": expected above 0, at most 1");
  const auto dims = static_cast<std::int32_t>(static_cast<double>(head_dim) * factor);
  require(dims >= 2 && dims % 2 == 0, source, ": ", kFactor, " = ", factor, " of heads of ",
          head_dim, ": expected an even count of numbers");
  return dims == head_dim ? 0 : dims;
}

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

namespace {

// The default of MuseGlimmerTextConfig in transformers 5.24.
constexpr float kPostNormEps = 1e-8f;
constexpr double kLogitCap = 20, kLogitScale = 0.19611613513818404;
constexpr double kQueryGain = 3.87;

// A theta of 0 means no RoPE in that layer; all other layers share one table of positions.
void read_rope_layers(const Json& json, std::string_view source, ModelConfig& config) {
  constexpr const char* kThetas = "layer_rope_theta";
  const std::int64_t layers = config.layer_count();
  const Json* thetas = json.find_given(kThetas);
  require(thetas == nullptr || (thetas->is_array() && std::ssize(*thetas) == layers), source, ": ",
          kThetas, ": expected a list of ", layers, " numbers");
  for (std::int64_t i = 0; i < layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    bool& rotary = config.layers[at].attention()->rotary;
    rotary = (layers - 1 - i) % 4 != 0;
    if (thetas == nullptr) continue;
    const Json& theta = (*thetas)[at];
    require(theta.is_number(), source, ": ", kThetas, "[", i, "]: expected a number");
    rotary = theta.get<double>() != 0;
    require(!rotary || theta.get<double>() == config.rope_theta, source, ": ", kThetas, "[", i,
            "] = ", theta.get<double>(), ", rope_theta = ", config.rope_theta,
            ": two tables of positions are not supported");
  }
}

}  // namespace

void read_muse(const Json& json, const Family& family, std::string_view source,
               ModelConfig& config) {
  if (!family.is_muse) return;
  require(!config.tied, source, ": tie_word_embeddings = true: ", family.name,
          " norms its embeddings, a head of the same rows is not supported");
  config.post_norm_eps = json_get_or<float>(json, "post_norm_eps", kPostNormEps, source);
  require(config.post_norm_eps > 0, source, ": post_norm_eps = ", config.post_norm_eps,
          ": expected above 0");
  config.logit_cap.scale = json_get_or<double>(json, "output_multiplier", kLogitScale, source);
  config.logit_cap.cap = json_get_or<double>(json, "final_logit_softcapping", kLogitCap, source);
  require(config.logit_cap.cap > 0, source, ": final_logit_softcapping = ", config.logit_cap.cap,
          ": expected above 0");
  read_rope_layers(json, source, config);
}

Family with_query_gain(const Family& family, const Json& json, std::string_view source) {
  Family with = family;
  if (!family.is_muse) return with;
  const auto gain = json_get_or<double>(json, "qk_scale_factor", kQueryGain, source);
  require(std::isfinite(gain) && gain > 0 && gain <= 1e6, source, ": qk_scale_factor = ", gain,
          ": expected above 0, at most 1e6");
  for (TensorRule& rule : with.tensors) {
    if (rule.leq == "layers.{}.q_norm") rule.constant = static_cast<float>(gain);
  }
  return with;
}

}  // namespace leq
