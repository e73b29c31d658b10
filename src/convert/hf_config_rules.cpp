#include "convert/hf_config_rules.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

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

}  // namespace leq
