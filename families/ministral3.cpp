// Ministral 3, Devstral 2 and Mistral Medium 3.5: LLaMA's architecture with YaRN and a query
// temperature that grows with the position.
#include "base/error.h"
#include "families/llama.h"

namespace leq {
namespace {

// The query temperature in rope_parameters, which applies to all layers.
void read_temperature(const Json& json, std::string_view source, ModelConfig& config) {
  const Json* rope = json.find_given("rope_parameters");
  if (rope == nullptr) rope = json.find_given("rope_scaling");
  if (rope == nullptr) return;
  const auto beta = json_get_or<double>(*rope, "llama_4_scaling_beta", 0, source);
  if (beta == 0) return;
  const auto period =
      json_get_or<std::int64_t>(*rope, "original_max_position_embeddings", config.context, source);
  require(period > 0, source, ": original_max_position_embeddings = ", period,
          " with llama_4_scaling_beta: expected at least 1");
  for (LayerConfig& layer : config.layers) layer.attention()->temperature = {beta, period};
}

}  // namespace

extern const Family kMinistral3;
const Family kMinistral3 = [] {
  Family family = llama_like("Ministral 3", "ministral3", "Ministral3ForCausalLM");
  family.windows = WindowRule::named;
  family.defaults = R"({"head_dim": 128, "rms_norm_eps": 1e-5, "max_position_embeddings": 262144, "rope_parameters": {
    "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "mscale": 1.0, "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1, "beta_fast": 32.0, "beta_slow": 1.0,
    "original_max_position_embeddings": 16384}})";
  family.finish = read_temperature;
  family.computes = {"rope_parameters.llama_4_scaling_beta"};
  return family;
}();

}  // namespace leq
