// What transformers 5 makes of keys of config.json that are absent, null or written twice, and keys
// that change the function of a model in a way that leq does not compute.
#pragma once

#include <string_view>

#include "base/json.h"

namespace leq {

// A key that is there and not null.
bool is_given(const Json& object, std::string_view key);

// The config with what the families of transformers take for absent and null keys, and the rope of
// its layers in one object, "rope_parameters". Throws Error naming `source` and the key that is
// refused, or both keys where two contradict.
Json complete_hf_config(Json config, std::string_view source);

}  // namespace leq
