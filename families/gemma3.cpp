// Gemma 3 (text): gains around zero, norms before and after sublayers and of q and k, GELU in the
// gated MLP, scaled embeddings; five layers with a window, then one without, each kind with its own
// RoPE.
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "families/layer_types.h"
#include "families/llama.h"

namespace leq {
namespace {

std::vector<TensorRule> gemma3_tensors() {
  std::vector<TensorRule> rules = llama_tensors();
  for (TensorRule& rule : rules) {
    if (rule.leq.ends_with("norm")) rule.transform = kAroundZero;
    if (rule.leq == "layers.{}.mlp_norm")
      rule.source = "layers.{}.pre_feedforward_layernorm.weight";
  }
  rules.push_back({"layers.{}.attention_post_norm",
                   "layers.{}.post_attention_layernorm.weight",
                   {},
                   kAroundZero});
  rules.push_back(
      {"layers.{}.mlp_post_norm", "layers.{}.post_feedforward_layernorm.weight", {}, kAroundZero});
  return rules;
}

// Before transformers 5, rope_theta and rope_scaling were those of layers without a window.
struct Base {
  const char *kind, *older_key;
  double theta;
};
constexpr std::array<Base, 2> kBases = {
    {{"full_attention", "rope_theta", 1e6}, {"sliding_attention", "rope_local_base_freq", 1e4}}};

void complete_gemma3(Json& json, std::string_view source) {
  constexpr const char* kPattern = "sliding_window_pattern";
  const auto period = json_get_or<std::int64_t>(json, kPattern, 6, source);
  require(period >= 1, source, ": ", kPattern, " = ", period, ": expected at least 1");
  list_layer_types(json, source,
                   [&](std::int64_t layer, std::int64_t) { return (layer + 1) % period == 0; });
  if (json.find_given("rope_parameters") == nullptr) {
    json["rope_parameters"] = Json::object();
    json["rope_parameters"]["full_attention"] = std::exchange(json["rope_scaling"], nullptr);
  }
  Json& ropes = json["rope_parameters"];
  require(ropes.is_object(), source, ": rope_parameters: expected an object");
  for (const auto& [kind, older_key, theta] : kBases) {
    Json& rope = ropes[kind];
    if (rope.is_null()) rope = Json::object();
    require(rope.is_object(), source, ": rope_parameters: ", kind, ": expected an object");
    if (rope.find_given("rope_theta") != nullptr) continue;
    rope["rope_theta"] = json_get_or<double>(json, older_key, theta, source);
  }
}

void read_gemma3(const Json& json, std::string_view source, ModelConfig& config) {
  constexpr const char* kScalar = "query_pre_attn_scalar";
  constexpr const char* kCap = "final_logit_softcapping";
  if (json_get_or<bool>(json, "use_bidirectional_attention", false, source)) {
    for (LayerConfig& layer : config.layers) {
      AttentionConfig& attention = *layer.attention();
      attention.both_ways = true;
      if (attention.window > 0) attention.window = attention.window / 2 + 1;
    }
  }
  config.embedding_scale = std::sqrt(static_cast<double>(config.width));
  config.post_norm_eps = config.norm_eps;
  require(config.post_norm_eps > 0, source, ": rms_norm_eps = 0: expected above 0");
  const auto scalar = json_get<double>(json, kScalar, source);
  require(scalar > 0, source, ": ", kScalar, " = ", scalar, ": expected above 0");
  if (scalar != static_cast<double>(config.head_dim)) {
    for (LayerConfig& layer : config.layers) layer.attention()->query_scale = 1 / std::sqrt(scalar);
  }
  if (json.find_given(kCap) == nullptr) return;
  config.logit_cap.cap = json_get<double>(json, kCap, source);
  require(config.logit_cap.cap > 0, source, ": ", kCap, " = ", config.logit_cap.cap,
          ": expected above 0");
}

}  // namespace

extern const Family kGemma3;
const Family kGemma3 = [] {
  Family family = llama_like("Gemma 3", "gemma3_text", "Gemma3ForCausalLM");
  family.architectures.push_back("Gemma3TextModel");
  family.keys.activation = "hidden_activation";
  family.activations = {"gelu_pytorch_tanh"};
  family.tied_by_default = true;
  family.qk_norm = true;
  family.defaults = R"({"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4,
    "head_dim": 256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 256, "sliding_window": 4096})";
  family.complete = complete_gemma3;
  family.finish = read_gemma3;
  family.computes = {"query_pre_attn_scalar", "final_logit_softcapping"};
  family.fixed = {{"attention_bias", false}};
  family.tensors = gemma3_tensors();
  return family;
}();

}  // namespace leq
