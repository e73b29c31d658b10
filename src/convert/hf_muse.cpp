#include "convert/hf_muse.h"

#include <cmath>

#include "base/error.h"

namespace leq {
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
