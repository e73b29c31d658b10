// Reads the mixture-of-experts settings of a config.json.
#pragma once

#include <string_view>

#include "base/json.h"
#include "models/family.h"

namespace leq {

// Replaces the dense MLP by experts in the layers that have them; does nothing for families without
// experts. Throws Error naming `source` and the key that is missing or out of range.
void read_experts(const Json& json, const Family& family, std::string_view source,
                  ModelConfig& config);

}  // namespace leq
