// transformers 5's rules for keys of config.json that are absent, null or given twice, and checks
// for keys that change the model's function in a way that leq does not support.
#pragma once

#include <string_view>

#include "base/json.h"

namespace leq {

// Completes the config with transformers' defaults for absent and null keys, and merges the rope
// settings of all layers into one object, "rope_parameters". Throws Error naming `source` and the
// refused key, or two contradicting keys.
Json complete_hf_config(Json config, std::string_view source);

}  // namespace leq
