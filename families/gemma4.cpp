// Gemma 4 (text): norms before and after sublayers, of q and k, and of v without a gain; GELU in
// the gated MLP, scaled embeddings, a factor on each layer's output; five layers with a window,
// then one without, whose heads are wider and may use keys as values, with RoPE on a part of the
// pairs.
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "families/layer_types.h"
#include "families/llama.h"

namespace leq {
namespace {

std::vector<TensorRule> gemma4_tensors() {
  constexpr std::string_view gate_up = "layers.{}.experts.gate_up_proj";
  std::vector<TensorRule> rules = llama_tensors();
  for (TensorRule& rule : rules) {
    if (rule.leq == "layers.{}.mlp_norm")
      rule.source = "layers.{}.pre_feedforward_layernorm.weight";
  }
  const std::vector<TensorRule> more = {
      {"layers.{}.v", "layers.{}.self_attn.k_proj.weight"},  // where keys are values
      {"layers.{}.v_norm", "", {}, {.constant = 1}},
      {"layers.{}.attention_post_norm", "layers.{}.post_attention_layernorm.weight"},
      {"layers.{}.mlp_post_norm", "layers.{}.post_feedforward_layernorm_1.weight"},
      {"layers.{}.mlp_post_norm", "layers.{}.post_feedforward_layernorm.weight"},
      {"layers.{}.experts_norm", "layers.{}.pre_feedforward_layernorm_2.weight"},
      {"layers.{}.experts_post_norm", "layers.{}.post_feedforward_layernorm_2.weight"},
      {"layers.{}.joined_post_norm", "layers.{}.post_feedforward_layernorm.weight"},
      {"layers.{}.router_norm", "layers.{}.router.scale", {}, {.by_root_width = true}},
      {"layers.{}.router", "layers.{}.router.proj.weight"},
      {"layers.{}.router_scales", "layers.{}.router.per_expert_scale"},
      {"layers.{}.experts.{}.gate", gate_up, {.parts = 2, .stacked = true}},
      {"layers.{}.experts.{}.up", gate_up, {.part = 1, .parts = 2, .stacked = true}},
      {"layers.{}.experts.{}.down", "layers.{}.experts.down_proj", {.stacked = true}},
      {"layers.{}.layer_scale", "layers.{}.layer_scalar"},
      {"layer_embedding", "embed_tokens_per_layer.weight"},
      {"layer_projection", "per_layer_model_projection.weight"},
      {"layer_projection_norm", "per_layer_projection_norm.weight"},
      {"layers.{}.input_gate", "layers.{}.per_layer_input_gate.weight"},
      {"layers.{}.input_projection", "layers.{}.per_layer_projection.weight"},
      {"layers.{}.input_post_norm", "layers.{}.post_per_layer_input_norm.weight"},
  };
  rules.insert(rules.end(), more.begin(), more.end());
  return rules;
}

void complete_gemma4(Json& json, std::string_view source) {
  list_layer_types(json, source, [](std::int64_t layer, std::int64_t layers) {
    return (layer + 1) % 6 == 0 || layer + 1 == layers;
  });
  if (!json_get_or<bool>(json, "enable_moe_block", false, source)) json["num_experts"] = 0;
  if (json.find_given("rope_parameters") != nullptr) return;
  json["rope_parameters"] = {
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}},
      {"full_attention",
       {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1e6}}}};
}

// Heads of full layers: global_* keys or, as transformers 5.24 writes them, an object for a layer.
KvHeads own_heads(const Json& json, std::int64_t layer, std::string_view source,
                  const ModelConfig& config) {
  KvHeads heads = {config.kv_heads,
                   json_get_or<std::int64_t>(json, "global_head_dim", 512, source)};
  if (json_get_or<bool>(json, "attention_k_eq_v", false, source)) {
    heads.count =
        json_get_or<std::int64_t>(json, "num_global_key_value_heads", heads.count, source);
  }
  const Json* layers = json.find_given("per_layer_config");
  if (layers == nullptr) return heads;
  require(layers->is_object(), source, ": per_layer_config: expected an object");
  const Json* own = layers->find_given(std::to_string(layer));
  if (own == nullptr) return {config.kv_heads, config.head_dim};
  return {json_get_or<std::int64_t>(*own, "num_key_value_heads", config.kv_heads, source),
          json_get_or<std::int64_t>(*own, "head_dim", config.head_dim, source)};
}

void read_attention(const Json& json, std::string_view source, ModelConfig& config) {
  const KvHeads usual = {config.kv_heads, config.head_dim};
  for (std::int64_t i = 0; i < config.layer_count(); ++i) {
    AttentionConfig& attention = *config.layers[static_cast<std::size_t>(i)].attention();
    attention.v_norm = true;
    attention.query_scale = 1;
    const bool full = json["layer_types"][static_cast<std::size_t>(i)] == "full_attention";
    const KvHeads heads = full ? own_heads(json, i, source, config) : usual;
    if (heads == usual) continue;
    attention.own_heads = heads;
    attention.rope->dims = static_cast<std::int32_t>(heads.dims);
  }
}

// The last layers read the keys and values of the last layer before them with the same kind.
void share_keys(const Json& json, std::string_view source, ModelConfig& config) {
  constexpr const char* kShared = "num_kv_shared_layers";
  const auto shared = json_get_or<std::int64_t>(json, kShared, 0, source);
  const std::int64_t first = config.layer_count() - shared;
  require(shared >= 0 && first > 0, source, ": ", kShared, " = ", shared, " of ",
          config.layer_count(), " layers");
  const bool wide = json_get_or<bool>(json, "use_double_wide_mlp", false, source);
  const Json& types = json["layer_types"];
  for (std::int64_t i = first; i < config.layer_count(); ++i) {
    std::int64_t from = first - 1;
    while (from >= 0 && types[static_cast<std::size_t>(from)] != types[static_cast<std::size_t>(i)])
      --from;
    require(from >= 0, source, ": ", kShared, " = ", shared, ": no layer of the kind of layer ", i,
            " has keys of its own");
    LayerConfig& layer = config.layers[static_cast<std::size_t>(i)];
    layer.attention()->kv_of = from;
    if (wide && layer.dense_mlp() != nullptr) layer.dense_mlp()->hidden *= 2;
  }
}

void read_layer_inputs(const Json& json, std::string_view source, ModelConfig& config) {
  constexpr const char* kInput = "hidden_size_per_layer_input";
  constexpr const char* kVocab = "vocab_size_per_layer_input";
  config.layer_input = json_get_or<std::int64_t>(json, kInput, 0, source);
  if (config.layer_input == 0) return;
  const auto vocab = json_get_or<std::int64_t>(json, kVocab, 262144, source);
  require(vocab == config.vocab, source, ": ", kVocab, " = ", vocab, ": expected vocab_size, ",
          config.vocab);
}

void read_gemma4(const Json& json, std::string_view source, ModelConfig& config) {
  constexpr const char* kCap = "final_logit_softcapping";
  constexpr const char* kBothWays = "use_bidirectional_attention";
  const auto both = json_get_or<std::string>(json, kBothWays, "vision", source);
  require(both == "vision", source, ": ", kBothWays, " = ", both, " is not supported");
  config.embedding_scale = std::sqrt(static_cast<double>(config.width));
  config.post_norm_eps = config.norm_eps;
  require(config.post_norm_eps > 0, source, ": rms_norm_eps = 0: expected above 0");
  config.layer_scales = true;
  read_attention(json, source, config);
  for (LayerConfig& layer : config.layers) {
    ExpertsMlpConfig* experts = layer.experts_mlp();
    if (experts == nullptr) continue;
    experts->activation = Activation::gelu_tanh;
    experts->dense_hidden = json_get<std::int64_t>(json, "intermediate_size", source);
  }
  share_keys(json, source, config);
  read_layer_inputs(json, source, config);
  if (json.find_given(kCap) == nullptr) return;
  config.logit_cap.cap = json_get<double>(json, kCap, source);
  require(config.logit_cap.cap > 0, source, ": ", kCap, " = ", config.logit_cap.cap,
          ": expected above 0");
}

Family gemma4(std::string_view model_type, std::string_view architecture) {
  Family family = llama_like("Gemma 4", model_type, architecture);
  family.keys.activation = "hidden_activation";
  family.activations = {"gelu_pytorch_tanh"};
  family.tied_by_default = true;
  family.qk_norm = true;
  family.complete = complete_gemma4;
  family.finish = read_gemma4;
  family.computes = {"final_logit_softcapping"};
  family.fixed = {{"attention_bias", false}};
  family.experts = ExpertKeys{.experts = "num_experts",
                              .active = "top_k_experts",
                              .hidden = "moe_intermediate_size",
                              .normalized = nullptr,
                              .sparse_step = nullptr,
                              .dense_layers = nullptr,
                              .shared_hidden = nullptr};
  family.tensors = gemma4_tensors();
  return family;
}

}  // namespace

extern const Family kGemma4;
const Family kGemma4 = [] {
  Family family = gemma4("gemma4_text", "Gemma4ForCausalLM");
  family.defaults = R"({"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216,
    "num_hidden_layers": 30, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "sliding_window": 512,
    "hidden_size_per_layer_input": 256})";
  return family;
}();

extern const Family kGemma4Unified;
const Family kGemma4Unified = [] {
  Family family = gemma4("gemma4_unified_text", "Gemma4UnifiedForCausalLM");
  family.defaults = R"({"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216,
    "num_hidden_layers": 30, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "sliding_window": 1024})";
  return family;
}();

}  // namespace leq
