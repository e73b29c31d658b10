// SmolLM3: LLaMA's architecture, where every fourth layer has no RoPE.
#include "base/error.h"
#include "families/layer_types.h"
#include "families/llama.h"

namespace leq {
namespace {

// no_rope_layers has a 1 for each layer with RoPE, in spite of its name.
bool has_rope(const Json& json, std::string_view source, std::int64_t layer) {
  constexpr const char *kLayers = "no_rope_layers", *kInterval = "no_rope_layer_interval";
  if (const Json* flags = json.find_given(kLayers)) {
    require(flags->is_array() && layer < std::ssize(*flags), source, ": ", kLayers,
            ": expected a list of a number for each layer");
    const Json& flag = (*flags)[static_cast<std::size_t>(layer)];
    require(flag == 0 || flag == 1, source, ": ", kLayers, "[", layer, "]: expected 0 or 1");
    return flag == 1;
  }
  const auto interval = json_get_or<std::int64_t>(json, kInterval, 4, source);
  require(interval >= 1, source, ": ", kInterval, " = ", interval, ": expected at least 1");
  return (layer + 1) % interval != 0;
}

void complete_smollm3(Json& json, std::string_view source) {
  const bool windows = json.find_given("sliding_window") != nullptr &&
                       json_get_or<bool>(json, "use_sliding_window", false, source);
  list_layer_types(json, source, [&](std::int64_t layer, std::int64_t) {
    return !windows || has_rope(json, source, layer);
  });
}

void read_smollm3(const Json& json, std::string_view source, ModelConfig& config) {
  for (std::int64_t i = 0; i < config.layer_count(); ++i) {
    if (has_rope(json, source, i)) continue;
    config.layers[static_cast<std::size_t>(i)].attention()->rope.reset();
  }
}

}  // namespace

extern const Family kSmolLm3;
const Family kSmolLm3 = [] {
  Family family = llama_like("SmolLM3", "smollm3", "SmolLM3ForCausalLM");
  family.defaults = R"({"max_position_embeddings": 32768, "rope_theta": 2e6})";
  family.tied_by_default = true;
  family.attention_bias_key = "attention_bias";
  family.mlp_bias_key = "mlp_bias";
  family.complete = complete_smollm3;
  family.finish = read_smollm3;
  return family;
}();

}  // namespace leq
