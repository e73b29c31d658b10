// gpt-oss 20B and 120B: experts in every layer with biases and a clamped SwiGLU, attention with
// sinks and biases, and a window in every second layer. Experts are stored transposed in 16 bits,
// or in blocks of MXFP4 (format/packed_source.h).
#include "base/error.h"
#include "families/layer_types.h"
#include "families/llama.h"

namespace leq {
namespace {

// Rows of gate and up alternate in one tensor.
constexpr TensorLayout gate_up(int part, bool transposed) {
  return {.transposed = transposed, .part = part, .parts = 2, .interleaved = true, .stacked = true};
}

std::vector<TensorRule> expert_rules() {
  const std::string_view gate_up_proj = "layers.{}.mlp.experts.gate_up_proj";
  const std::string_view packed = "layers.{}.mlp.experts.gate_up_proj.weight";
  const std::string_view bias = "layers.{}.mlp.experts.gate_up_proj_bias";
  const TensorLayout stacked = {.stacked = true};
  return {
      {"layers.{}.router", "layers.{}.mlp.router.weight"},
      {"layers.{}.router.bias", "layers.{}.mlp.router.bias"},
      {"layers.{}.experts.{}.gate", gate_up_proj, gate_up(0, true)},
      {"layers.{}.experts.{}.gate", packed, gate_up(0, false)},
      {"layers.{}.experts.{}.gate.bias", bias, gate_up(0, false)},
      {"layers.{}.experts.{}.up", gate_up_proj, gate_up(1, true)},
      {"layers.{}.experts.{}.up", packed, gate_up(1, false)},
      {"layers.{}.experts.{}.up.bias", bias, gate_up(1, false)},
      {"layers.{}.experts.{}.down",
       "layers.{}.mlp.experts.down_proj",
       {.transposed = true, .stacked = true}},
      {"layers.{}.experts.{}.down", "layers.{}.mlp.experts.down_proj.weight", stacked},
      {"layers.{}.experts.{}.down.bias", "layers.{}.mlp.experts.down_proj_bias", stacked},
      {"layers.{}.attention_sinks", "layers.{}.self_attn.sinks"},
  };
}

void complete_gpt_oss(Json& json, std::string_view source) {
  list_layer_types(json, source, [](std::int64_t layer, std::int64_t) { return layer % 2 == 1; });
  const bool scaled = json.find_given("rope_scaling") || json.find_given("rope_parameters");
  if (scaled) return;
  json["rope_scaling"] = {{"rope_type", "yarn"},
                          {"factor", 32},
                          {"truncate", false},
                          {"original_max_position_embeddings", 4096}};
}

void read_gpt_oss(const Json& json, std::string_view source, ModelConfig& config) {
  const auto limit = json_get_or<double>(json, "swiglu_limit", 7, source);
  const auto alpha = json_get_or<double>(json, "swiglu_alpha", 1.702, source);
  require(limit == 7 && alpha == 1.702, source, ": swiglu_limit = ", limit,
          ", swiglu_alpha = ", alpha, ": expected 7 and 1.702");
  for (LayerConfig& layer : config.layers) {
    require(layer.experts_mlp() != nullptr, source, ": num_local_experts = 0: expected at least 1");
    layer.attention()->sinks = true;
    layer.experts_mlp()->activation = Activation::clamped_swiglu;
    layer.experts_mlp()->bias = true;
  }
}

}  // namespace

extern const Family kGptOss;
const Family kGptOss = [] {
  Family family = llama_like("gpt-oss", "gpt_oss", "GptOssForCausalLM");
  family.defaults = R"({"head_dim": 64, "max_position_embeddings": 131072, "sliding_window": 128,
    "attention_bias": true, "rms_norm_eps": 1e-5, "rope_theta": 150000})";
  family.attention_bias_key = "attention_bias";
  family.experts = ExpertKeys{.experts = "num_local_experts",
                              .active = "num_experts_per_tok",
                              .hidden = "intermediate_size",
                              .normalized = nullptr,
                              .sparse_step = nullptr,
                              .dense_layers = nullptr,
                              .shared_hidden = nullptr};
  family.complete = complete_gpt_oss;
  family.finish = read_gpt_oss;
  const std::vector<TensorRule> rules = expert_rules();
  family.tensors.insert(family.tensors.end(), rules.begin(), rules.end());
  return family;
}();

}  // namespace leq
