// Granite 3 and dense Granite 4: LLaMA's architecture with factors on embeddings, queries, sublayer
// outputs and logits.
#include <algorithm>

#include "base/error.h"
#include "families/llama.h"

namespace leq {
namespace {

// With a factor m on sublayer outputs, the stream is stored as x / m, so that outputs are added as
// they are: embeddings are divided by m, and the eps of norms of x / m by m^2.
void read_granite(const Json& json, std::string_view source, ModelConfig& config) {
  const auto factor = [&](const char* key) {
    const auto value = json_get_or<double>(json, key, 1, source);
    require(value > 0 && value <= 1e6, source, ": ", key, " = ", value,
            ": expected above 0, at most 1e6");
    return value;
  };
  const double outputs = factor("residual_multiplier");
  config.embedding_scale = factor("embedding_multiplier") / outputs;
  config.norm_eps = static_cast<float>(double{config.norm_eps} / (outputs * outputs));
  for (LayerConfig& layer : config.layers) {
    layer.attention()->query_scale = factor("attention_multiplier");
  }
}

Family granite_like(std::string_view name, std::string_view model_type,
                    std::string_view architecture) {
  Family family = llama_like(name, model_type, architecture);
  std::ranges::find(family.tensors, "final_norm", &TensorRule::leq)->transform = {
      .divisor_key = "logits_scaling"};
  family.attention_bias_key = "attention_bias";
  family.finish = read_granite;
  family.computes = {"attention_multiplier", "embedding_multiplier", "residual_multiplier",
                     "logits_scaling"};
  return family;
}

// The dense MLP of Granite 4 has the names of an expert that all tokens share.
std::vector<TensorRule> shared_tensors(std::vector<TensorRule> rules) {
  constexpr std::string_view kInput = "layers.{}.shared_mlp.input_linear.weight";
  for (TensorRule& rule : rules) {
    if (rule.leq == "layers.{}.gate") rule.source = kInput, rule.layout = {.part = 0, .parts = 2};
    if (rule.leq == "layers.{}.up") rule.source = kInput, rule.layout = {.part = 1, .parts = 2};
    if (rule.leq == "layers.{}.down") rule.source = "layers.{}.shared_mlp.output_linear.weight";
  }
  return rules;
}

void complete_granite4(Json& json, std::string_view source) {
  const auto experts = json_get_or<std::int64_t>(json, "num_local_experts", 8, source);
  require(experts == 0, source, ": num_local_experts = ", experts,
          ": expected 0, only dense models are supported");
  const Json* types = json.find_given("layer_types");
  require(types != nullptr && types->is_array(), source, ": layer_types: expected a list of names");
  for (Json& type : json["layer_types"]) {
    if (type == "attention") type = "full_attention";  // before transformers 5
  }
}

void read_granite4(const Json& json, std::string_view source, ModelConfig& config) {
  read_granite(json, source, config);
  const auto positions = json_get_or<std::string>(json, "position_embedding_type", "", source);
  if (positions == "rope") return;
  for (LayerConfig& layer : config.layers) layer.attention()->rope.reset();
}

}  // namespace

extern const Family kGranite;
const Family kGranite = [] {
  Family family = granite_like("Granite", "granite", "GraniteForCausalLM");
  family.defaults = R"({"max_position_embeddings": 2048})";
  family.mlp_bias_key = "mlp_bias";
  return family;
}();

extern const Family kGranite4;
const Family kGranite4 = [] {
  Family family = granite_like("Granite 4", "granitemoehybrid", "GraniteMoeHybridForCausalLM");
  family.defaults = R"({"max_position_embeddings": 2048, "rms_norm_eps": 1e-6})";
  family.keys.hidden = "shared_intermediate_size";
  family.tensors = shared_tensors(family.tensors);
  family.complete = complete_granite4;
  family.finish = read_granite4;
  return family;
}();

}  // namespace leq
