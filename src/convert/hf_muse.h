// Reads the config.json keys that only Muse Glimmer has.
#pragma once

#include <string_view>

#include "base/json.h"
#include "model/model_config.h"
#include "models/family.h"

namespace leq {

// Reads post_norm_eps, output_multiplier and final_logit_softcapping, and from layer_rope_theta the
// layers with RoPE. `config` must have its layers and rope_theta. Skips other families.
void read_muse(const Json& json, const Family& family, std::string_view source,
               ModelConfig& config);

// The family with the checkpoint's query factor (qk_scale_factor) applied as the gain of its query
// norms.
Family with_query_gain(const Family& family, const Json& json, std::string_view source);

}  // namespace leq
