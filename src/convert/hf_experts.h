// The experts of a checkpoint by its config.json.
#pragma once

#include <string_view>

#include "base/json.h"
#include "models/family.h"

namespace leq {

// Gives the layers that have them experts instead of their dense MLP; nothing where the family has
// none. Throws Error naming `source` and the key that is missing or out of range.
void read_experts(const Json& json, const Family& family, std::string_view source,
                  ModelConfig& config);

}  // namespace leq
